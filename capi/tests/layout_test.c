/* The structs and numbers of the ABI on a 64-bit machine, pinned: a change here breaks programs that were compiled before. */
#include <stddef.h>

#include "capi/moe.h"

#define PIN(name, condition) typedef char pin_##name[(condition) ? 1 : -1]
#define AT(type, field, offset) PIN(type##_##field, offsetof(type, field) == (offset))
#define SIZE(type, size) PIN(type##_size, sizeof(type) == (size))

SIZE(moe_engine_options, 96);
AT(moe_engine_options, struct_size, 0);
AT(moe_engine_options, extension, 8);
AT(moe_engine_options, rank, 16);
AT(moe_engine_options, world_size, 24);
AT(moe_engine_options, inproc, 32);
AT(moe_engine_options, host, 40);
AT(moe_engine_options, port, 48);
AT(moe_engine_options, job_id, 56);
AT(moe_engine_options, local_world_size, 64);
AT(moe_engine_options, log, 72);
AT(moe_engine_options, log_user_data, 80);
AT(moe_engine_options, flight_dir, 88);

SIZE(moe_parameter, 152);
AT(moe_parameter, struct_size, 0);
AT(moe_parameter, extension, 8);
AT(moe_parameter, name, 16);
AT(moe_parameter, is_expert, 24);
AT(moe_parameter, dtype, 28);
AT(moe_parameter, ndim, 32);
AT(moe_parameter, decay, 36);
AT(moe_parameter, shape, 40);
AT(moe_parameter, global_shape, 72);
AT(moe_parameter, begin, 104);
AT(moe_parameter, value, 136);
AT(moe_parameter, grad, 144);

SIZE(moe_layer_stats, 48);
AT(moe_layer_stats, aux_loss, 16);
AT(moe_layer_stats, z_loss, 24);
AT(moe_layer_stats, tokens, 32);
AT(moe_layer_stats, dropped_routes, 40);

SIZE(moe_batch, 56);
AT(moe_batch, ids, 16);
AT(moe_batch, labels, 24);
AT(moe_batch, batch, 32);
AT(moe_batch, seq, 40);
AT(moe_batch, first_sample, 48);

SIZE(moe_step_stats, 88);
AT(moe_step_stats, step, 16);
AT(moe_step_stats, loss, 24);
AT(moe_step_stats, aux_loss, 32);
AT(moe_step_stats, z_loss, 40);
AT(moe_step_stats, total_loss, 48);
AT(moe_step_stats, grad_norm, 56);
AT(moe_step_stats, lr, 64);
AT(moe_step_stats, tokens, 72);
AT(moe_step_stats, dropped_routes, 80);

PIN(codes, MOE_OK == 0 && MOE_CANCELLED == 1 && MOE_UNKNOWN == 2 && MOE_INVALID_ARGUMENT == 3 && MOE_DEADLINE_EXCEEDED == 4 && MOE_NOT_FOUND == 5 && MOE_ALREADY_EXISTS == 6 &&
               MOE_PERMISSION_DENIED == 7 && MOE_RESOURCE_EXHAUSTED == 8 && MOE_FAILED_PRECONDITION == 9 && MOE_ABORTED == 10 && MOE_OUT_OF_RANGE == 11 && MOE_UNIMPLEMENTED == 12 &&
               MOE_INTERNAL == 13 && MOE_UNAVAILABLE == 14 && MOE_DATA_LOSS == 15 && MOE_UNAUTHENTICATED == 16);
PIN(dtypes, MOE_FLOAT32 == 1 && MOE_FLOAT64 == 2 && MOE_INT32 == 3 && MOE_INT64 == 4 && MOE_UINT8 == 5);
PIN(ops, MOE_SUM == 0 && MOE_MAX == 1 && MOE_MIN == 2);
PIN(axes, MOE_AXIS_TP == 0 && MOE_AXIS_CP == 1 && MOE_AXIS_DP == 2 && MOE_AXIS_PP == 3 && MOE_AXIS_ETP == 4 && MOE_AXIS_EP == 5 && MOE_AXIS_EDP == 6);
PIN(groups, MOE_GROUP_TP == 0 && MOE_GROUP_CP == 1 && MOE_GROUP_DP == 2 && MOE_GROUP_PP == 3 && MOE_GROUP_DP_CP == 4 && MOE_GROUP_ETP == 5 && MOE_GROUP_EP == 6 && MOE_GROUP_EDP == 7 &&
                MOE_GROUP_STAGE == 8 && MOE_GROUP_REPLICA == 9 && MOE_GROUP_ENDS == 10);

/* MOE_INIT zeroes all and sets the size. */
int main(void) {
  moe_batch b;
  unsigned char* bytes = (unsigned char*)&b;
  size_t i;
  for (i = 0; i < sizeof(b); ++i) bytes[i] = 0xff;
  MOE_INIT(b);
  if (b.struct_size != sizeof(b)) return 1;
  for (i = sizeof(size_t); i < sizeof(b); ++i)
    if (bytes[i] != 0) return 2;
  return 0;
}
