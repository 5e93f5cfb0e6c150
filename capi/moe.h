/* libmoe: training of Mixture-of-Experts models. This header is the specification of the ABI.
 *
 * Conventions
 *  - C99, no other header needed. Objects are opaque handles made by moe_<object>_create (or another function
 *    whose last parameter is a pointer to the handle) and freed by moe_<object>_destroy, which accepts NULL,
 *    returns nothing and never fails. A handle made from another one keeps what it needs of it alive:
 *    handles may be destroyed in any order.
 *  - Errors: every other function returns moe_status*. NULL is success. Otherwise the caller owns the status and frees
 *    it with moe_status_destroy. On error output parameters are untouched.
 *  - Strings are UTF-8, NUL-terminated. Strings passed in are copied. A `char**` output is owned by the caller and
 *    freed with moe_string_destroy. A `const char*` result lives as long as the handle that it came from.
 *  - Structs that cross the interface start with `struct_size` (set it to sizeof the struct; MOE_INIT does) and
 *    `extension` (NULL). A zero field means the default. A shorter struct of an older header is accepted; a longer
 *    one only if the bytes that this library does not know are zero.
 *  - Counts and sizes are int64_t. Tensors are row-major, contiguous unless strides say otherwise.
 *  - Threads: a handle is used by one thread at a time (the functions of one engine and of all that was made from it
 *    count together), except moe_engine_abort, which any thread may call at any time, and the functions on
 *    moe_status, moe_config, moe_mesh and moe_string, which have no shared state. A second thread inside gets FAILED_PRECONDITION.
 *  - "Collective": all ranks (of the engine, group, layer or model) call it, in the same order. If one fails, all get an
 *    error; nobody waits for ever.
 *  - After fork() every handle in the child answers FAILED_PRECONDITION.
 */
#ifndef MOE_CAPI_MOE_H_
#define MOE_CAPI_MOE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOE_VERSION_MAJOR 1
#define MOE_VERSION_MINOR 0
#define MOE_VERSION_PATCH 0

#if defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#else
#define MOE_API
#endif

/* Zeroes a struct and sets its size:  moe_batch b; MOE_INIT(b); */
#define MOE_INIT(s)                                                  \
  do {                                                               \
    size_t moe_i_;                                                   \
    for (moe_i_ = 0; moe_i_ < sizeof(s); ++moe_i_) ((char*)&(s))[moe_i_] = 0; \
    (s).struct_size = sizeof(s);                                     \
  } while (0)

typedef struct moe_status moe_status;   /* an error */
typedef struct moe_config moe_config;   /* the configuration of a run: core/config/config.proto */
typedef struct moe_inproc moe_inproc;   /* ranks that are threads of this process */
typedef struct moe_engine moe_engine;   /* one rank: device, transport, modules */
typedef struct moe_group moe_group;     /* ranks that communicate */
typedef struct moe_work moe_work;       /* a communication in flight */
typedef struct moe_layer moe_layer;     /* one MoE layer on the caller's buffers */
typedef struct moe_model moe_model;     /* a language model with its optimizer */
typedef struct moe_mesh moe_mesh;       /* which ranks share what */

/* ---- library ------------------------------------------------------------------------------------------------- */

/* Version of the library in use (not of the header). Never fails. */
MOE_API void moe_version(int32_t* major, int32_t* minor, int32_t* patch);
/* What this machine and library have: JSON with cpu, cores, isa, blas, ucx {found, version, path | remedy},
 * cuda {built, driver | remedy}, gates, experts, partitions. `ucx_library` may be NULL (the system's). */
MOE_API moe_status* moe_info(const char* ucx_library, char** json);
MOE_API void moe_string_destroy(char* s);

/* ---- status -------------------------------------------------------------------------------------------------- */

/* The numbers of absl::StatusCode. */
typedef enum moe_code {
  MOE_OK = 0, MOE_CANCELLED = 1, MOE_UNKNOWN = 2, MOE_INVALID_ARGUMENT = 3, MOE_DEADLINE_EXCEEDED = 4,
  MOE_NOT_FOUND = 5, MOE_ALREADY_EXISTS = 6, MOE_PERMISSION_DENIED = 7, MOE_RESOURCE_EXHAUSTED = 8,
  MOE_FAILED_PRECONDITION = 9, MOE_ABORTED = 10, MOE_OUT_OF_RANGE = 11, MOE_UNIMPLEMENTED = 12, MOE_INTERNAL = 13,
  MOE_UNAVAILABLE = 14, MOE_DATA_LOSS = 15, MOE_UNAUTHENTICATED = 16
} moe_code;

/* All accept NULL (success): code MOE_OK, message "", numbers -1, no failed ranks. */
MOE_API int32_t moe_status_code(const moe_status* s);
MOE_API const char* moe_status_message(const moe_status* s);
MOE_API int64_t moe_status_origin_rank(const moe_status* s);          /* rank that first knew, or -1 */
MOE_API int64_t moe_status_num_failed_ranks(const moe_status* s);
MOE_API int64_t moe_status_failed_rank(const moe_status* s, int64_t i);  /* -1 when i is out of range */
MOE_API int64_t moe_status_group(const moe_status* s);
MOE_API int64_t moe_status_epoch(const moe_status* s);
MOE_API int64_t moe_status_sequence(const moe_status* s);
MOE_API void moe_status_destroy(moe_status* s);

/* ---- configuration ------------------------------------------------------------------------------------------- */

/* All defaults. */
MOE_API moe_status* moe_config_create(moe_config** config);
/* Reads a file: protobuf text format, or JSON when its first character is '{'. Errors carry line or path. */
MOE_API moe_status* moe_config_load(const char* path, moe_config** config);
/* Parses text (either format). */
MOE_API moe_status* moe_config_parse(const char* text, moe_config** config);
/* Sets one field by its path ("model.top_k"). A value for a section sets its `kind` ("transport", "inproc"). An unknown
 * path names the nearest ones, a value out of range or of another type names the allowed ones. */
MOE_API moe_status* moe_config_set(moe_config* config, const char* path, const char* value);
/* The value of a field as text, the default when it was not set; "" for an unset field without default. */
MOE_API moe_status* moe_config_get(const moe_config* config, const char* path, char** value);
/* Checks fields against each other (top_k <= num_global_experts, heads, sizes of the mesh against `ranks`, names of
 * modules ...). The status lists field, value and remedy. */
MOE_API moe_status* moe_config_validate(const moe_config* config);
/* The configuration in protobuf text format; with `full` every field, else the fields that were set. */
MOE_API moe_status* moe_config_to_text(const moe_config* config, int32_t full, char** text);
MOE_API moe_status* moe_config_to_json(const moe_config* config, int32_t full, char** json);
/* Every field: JSON array of {path, type, default, doc, allowed, min, max}; doc is the comment of the .proto. */
MOE_API moe_status* moe_config_describe(char** json);
MOE_API moe_status* moe_config_copy(const moe_config* config, moe_config** copy);
MOE_API void moe_config_destroy(moe_config* config);

/* ---- ranks ---------------------------------------------------------------------------------------------------- */

/* A world of `world_size` ranks that are threads of this process. Each thread makes its own engine with it. */
MOE_API moe_status* moe_inproc_create(int64_t world_size, moe_inproc** world);
MOE_API void moe_inproc_destroy(moe_inproc* world);

/* Levels: 0 debug, 1 info, 2 warning, 3 error. Called on any thread of the engine; `message` lives during the call. */
typedef void (*moe_log_fn)(void* user_data, int32_t level, const char* message);

typedef struct moe_engine_options {
  size_t struct_size;
  const void* extension;
  int64_t rank;             /* 0 .. world_size-1 */
  int64_t world_size;       /* 0: 1 */
  moe_inproc* inproc;       /* with transport.kind = inproc and world_size > 1 */
  const char* host;         /* of rank 0's rendezvous; NULL: transport.host */
  int64_t port;             /* 0: transport.port */
  const char* job_id;       /* the same on all ranks; NULL: "moe" */
  int64_t local_world_size; /* ranks on this machine, for `threads` = 0; 0: world_size */
  moe_log_fn log;           /* NULL: silent */
  void* log_user_data;
  /* A folder (made if it is not there, its parent must be) for the file rank-N.flight of the flight recorder, which moe_flight_report
   * reads while the job runs and after it; NULL: the recorder is in memory alone. An older file of this rank is replaced. */
  const char* flight_dir;
} moe_engine_options;

/* Collective over the world. Validates the configuration (copied), opens the device and the transport and waits for all
 * ranks; DEADLINE_EXCEEDED names those that did not come. */
MOE_API moe_status* moe_engine_create(const moe_config* config, const moe_engine_options* options, moe_engine** engine);
MOE_API int64_t moe_engine_rank(const moe_engine* engine);
MOE_API int64_t moe_engine_world_size(const moe_engine* engine);
/* JSON: device, threads, transport, peers (how each is reached), mesh. */
MOE_API moe_status* moe_engine_describe(moe_engine* engine, char** json);
/* Fused multiply-adds per second that the workers of this rank reach now, times 2, in GFLOP/s (float32). */
MOE_API moe_status* moe_engine_measure_peak(moe_engine* engine, double* gflops);
/* Ends every pending and later communication of all ranks with this message (code CANCELLED). Any thread. */
MOE_API moe_status* moe_engine_abort(moe_engine* engine, const char* message);
/* Collective: leaves in good order, so that peers still get what was sent. Call before destroy. */
MOE_API moe_status* moe_engine_shutdown(moe_engine* engine);
MOE_API void moe_engine_destroy(moe_engine* engine);

/* ---- groups and collectives ----------------------------------------------------------------------------------- */

typedef enum moe_dtype { MOE_FLOAT32 = 1, MOE_FLOAT64 = 2, MOE_INT32 = 3, MOE_INT64 = 4, MOE_UINT8 = 5 } moe_dtype;
typedef enum moe_reduce_op { MOE_SUM = 0, MOE_MAX = 1, MOE_MIN = 2 } moe_reduce_op;

/* Collective over the n ranks (ascending, this rank among them). `id` >= 0 is the same on all members and unique. */
MOE_API moe_status* moe_group_create(moe_engine* engine, int64_t id, const int64_t* ranks, int64_t n, moe_group** group);
/* All ranks. */
MOE_API moe_status* moe_group_world(moe_engine* engine, moe_group** group);
MOE_API int64_t moe_group_rank(const moe_group* group);
MOE_API int64_t moe_group_size(const moe_group* group);
MOE_API void moe_group_destroy(moe_group* group);

/* Collectives of a group, on host memory. `work` NULL: blocks. Else returns at once with the operation in *work; buffers
 * belong to it until moe_work_wait returns or moe_work_test says done. Reductions sum in rank order: the same bits on
 * every rank, every transport and every run. */
MOE_API moe_status* moe_group_all_reduce(moe_group* group, void* inout, int64_t count, int32_t dtype, int32_t op, moe_work** work);
MOE_API moe_status* moe_group_all_gather(moe_group* group, const void* send, int64_t bytes, void* recv, moe_work** work);
MOE_API moe_status* moe_group_reduce_scatter(moe_group* group, const void* send, void* recv, int64_t count, int32_t dtype, int32_t op, moe_work** work);
/* Blocks in bytes at byte offsets, one per member. What i sends to j must be what j expects of i: else INVALID_ARGUMENT on
 * all members, naming the pair and both counts. The count arrays are copied. */
MOE_API moe_status* moe_group_all_to_all_v(moe_group* group, const void* send, const int64_t* send_bytes, const int64_t* send_offsets,
                                           void* recv, const int64_t* recv_bytes, const int64_t* recv_offsets, moe_work** work);
MOE_API moe_status* moe_group_broadcast(moe_group* group, void* inout, int64_t bytes, int64_t root, moe_work** work);
MOE_API moe_status* moe_group_send(moe_group* group, const void* data, int64_t bytes, int64_t to, uint32_t tag, moe_work** work);
MOE_API moe_status* moe_group_recv(moe_group* group, void* data, int64_t bytes, int64_t from, uint32_t tag, moe_work** work);
MOE_API moe_status* moe_group_barrier(moe_group* group, moe_work** work);

MOE_API moe_status* moe_work_test(moe_work* work, int32_t* done);
MOE_API moe_status* moe_work_wait(moe_work* work);
/* Waits for the operation if it is not done. */
MOE_API void moe_work_destroy(moe_work* work);

/* ---- parameters ------------------------------------------------------------------------------------------------ */

/* A view of one named tensor (or block of one) that this rank holds. Pointers live as long as layer or model; they may be
 * read and written between calls. */
typedef struct moe_parameter {
  size_t struct_size;
  const void* extension;
  const char* name;           /* global, layout-free: "layers.0.moe.experts.5.w1.weight" */
  int32_t is_expert;          /* 1: held by one expert-parallel rank; 0: on every rank */
  int32_t dtype;              /* moe_dtype */
  int32_t ndim;               /* 1 .. 4 */
  int32_t decay;              /* 1: weight decay applies */
  int64_t shape[4];           /* of this block */
  int64_t global_shape[4];    /* of the whole tensor */
  int64_t begin[4];           /* where the block starts in it */
  void* value;
  void* grad;
} moe_parameter;

/* ---- one MoE layer --------------------------------------------------------------------------------------------- */

typedef struct moe_layer_stats {
  size_t struct_size;
  const void* extension;
  double aux_loss;            /* balancing loss without its coefficient, over all ranks of the group */
  double z_loss;              /* mean logsumexp^2 without its coefficient, over all ranks of the group */
  int64_t tokens;             /* valid tokens of all ranks of the group */
  int64_t dropped_routes;     /* by capacity, all ranks of the group */
} moe_layer_stats;

/* Collective over `group` (its expert-parallel group; experts are shared among the members by the partition). Uses
 * the engine's configuration: model.{d_model,d_hidden,num_global_experts,top_k,dtype}, gate, expert, partition, seed.
 * Parameters are named "moe.gate.weight" [E,D], "moe.experts.<id>.{w1,w3,w2}.weight". INVALID_ARGUMENT on every member when the
 * group crosses pipeline stages of the engine's mesh, naming axis, ranks and stages: MOE_GROUP_EP is one that does not. */
MOE_API moe_status* moe_layer_create(moe_engine* engine, moe_group* group, moe_layer** layer);
/* Collective. x, y: [T, d_model] of the model's dtype; any T >= 0 on each rank. token_valid: [T] bytes or NULL; tokens with
 * 0 go to no expert (y = 0). Keeps x by copy for backward. stats may be NULL. */
MOE_API moe_status* moe_layer_forward(moe_layer* layer, const void* x, int64_t num_tokens, const uint8_t* token_valid, void* y, moe_layer_stats* stats);
/* Collective, once after each forward. dx: [T, d_model], overwritten; parameter gradients are added to. The router's
 * gradient includes aux_loss_scale * gate.aux_loss_coef * aux and aux_loss_scale * gate.z_loss_coef * z. Gradients of dense
 * parameters (the router) are this rank's share: sum them over the ranks that split the batch. */
MOE_API moe_status* moe_layer_backward(moe_layer* layer, const void* dy, double aux_loss_scale, void* dx);
MOE_API moe_status* moe_layer_zero_grad(moe_layer* layer);
/* expert_count[num_global_experts] of the last forward: routes before drops, all ranks of the group. */
MOE_API moe_status* moe_layer_expert_count(const moe_layer* layer, int64_t* expert_count, int64_t n);
/* ids and weights [T, top_k] of the last forward on this rank; -1: dropped or not valid. Either may be NULL. */
MOE_API moe_status* moe_layer_routing(const moe_layer* layer, int32_t* ids, void* weights);
MOE_API int64_t moe_layer_num_parameters(const moe_layer* layer);
MOE_API moe_status* moe_layer_parameter(moe_layer* layer, int64_t index, moe_parameter* parameter);
MOE_API void moe_layer_destroy(moe_layer* layer);

/* ---- a model --------------------------------------------------------------------------------------------------- */

/* Sequences of this rank. labels[b,s] is the token that should follow ids[b,s]; negative: ignored. */
typedef struct moe_batch {
  size_t struct_size;
  const void* extension;
  const int32_t* ids;         /* [batch, seq] */
  const int32_t* labels;      /* [batch, seq]; may be NULL where none are needed */
  int64_t batch;              /* >= 0; ranks may differ */
  int64_t seq;                /* the same on all ranks */
  int64_t first_sample;       /* global index of the first sequence (keys random numbers of gates) */
} moe_batch;

typedef struct moe_step_stats {
  size_t struct_size;
  const void* extension;
  int64_t step;               /* of the step that was done: 0 for the first */
  double loss;                /* mean cross-entropy per label over the global batch, nats */
  double aux_loss;            /* balancing loss, without its coefficient */
  double z_loss;              /* without its coefficient */
  double total_loss;          /* loss + coefficients * the others: what was differentiated */
  double grad_norm;           /* global, before clipping; each parameter once */
  double lr;
  int64_t tokens;             /* labels counted, all ranks */
  int64_t dropped_routes;     /* all ranks, all layers */
} moe_step_stats;

/* Collective over the world. Builds the model of the configuration with its initial weights. */
MOE_API moe_status* moe_model_create(moe_engine* engine, moe_model** model);
/* Collective. JSON: parameters global and per rank by kind, experts global and per rank, memory estimate in bytes by category, mesh,
 * this rank's place (data-parallel rank and size: which share of the batch is its own). */
MOE_API moe_status* moe_model_describe(moe_model* model, char** json);
/* Which share of a global batch this rank computes: data-parallel index and size. */
MOE_API moe_status* moe_model_data_rank(const moe_model* model, int64_t* dp_rank, int64_t* dp_size);
/* Collective. forward + backward of the global batch (this rank's part given), gradients reduced over the ranks. Gradients
 * are set, not added to. Splits into micro-batches of train.micro_batch. Fills all but grad_norm and lr. */
MOE_API moe_status* moe_model_forward_backward(moe_model* model, const moe_batch* batch, moe_step_stats* stats);
/* Collective. Clips, updates, advances the step counter. Fills step, grad_norm, lr and leaves the rest. */
MOE_API moe_status* moe_model_optimizer_step(moe_model* model, moe_step_stats* stats);
/* Both. */
MOE_API moe_status* moe_model_train_step(moe_model* model, const moe_batch* batch, moe_step_stats* stats);
/* Collective. Sum of cross-entropy and number of labels over all ranks; touches no state. */
MOE_API moe_status* moe_model_evaluate(moe_model* model, const moe_batch* batch, double* nll_sum, int64_t* num_labels);
/* Collective. Logits [batch, seq, vocab_size] of this rank's sequences, in the model's dtype. */
MOE_API moe_status* moe_model_logits(moe_model* model, const moe_batch* batch, void* logits);
/* Collective; all ranks give the same arguments and get the same tokens. Samples num_tokens after the prompt (n > 0 ids) at
 * `temperature` (0: the likeliest) with random numbers keyed by seed; at most train.seq_len last tokens are seen. */
MOE_API moe_status* moe_model_generate(moe_model* model, const int32_t* prompt, int64_t n, int64_t num_tokens, double temperature, uint64_t seed, int32_t* tokens);
/* Steps done. */
MOE_API int64_t moe_model_step(const moe_model* model);
/* expert_count[num_moe_layers][num_global_experts] of the last train_step (global batch, before drops). */
MOE_API int64_t moe_model_num_moe_layers(const moe_model* model);
MOE_API moe_status* moe_model_expert_count(const moe_model* model, int64_t* expert_count, int64_t n);
/* Collective. Writes a checkpoint folder `path` that must not exist: manifest.json and safetensors shards, parameters and
 * optimizer state under global names, with checksums. Written to a temporary name, synced, renamed: it is there whole or not
 * at all. `user_json` (NULL or JSON, the same on all ranks) is kept with it. */
MOE_API moe_status* moe_model_save(moe_model* model, const char* path, const char* user_json);
/* Collective. Any layout. With `weights_only` optimizer state and step are left. DATA_LOSS names file and tensor of damage; the
 * model is then unchanged. user_json may be NULL. */
MOE_API moe_status* moe_model_load(moe_model* model, const char* path, int32_t weights_only, char** user_json);
MOE_API int64_t moe_model_num_parameters(const moe_model* model);
MOE_API moe_status* moe_model_parameter(moe_model* model, int64_t index, moe_parameter* parameter);
MOE_API void moe_model_destroy(moe_model* model);

/* ---- mesh: which ranks share what ------------------------------------------------------------------------------ */

/* Two maps over the same ranks, the first axis fastest: attention (tp, cp, dp, pp) and experts (etp, ep, edp, pp). A rank has the same
 * pipeline coordinate in both. */
typedef enum moe_axis {
  MOE_AXIS_TP = 0,            /* tensor parallel: heads, vocabulary */
  MOE_AXIS_CP = 1,            /* context parallel: tokens of a sequence */
  MOE_AXIS_DP = 2,            /* data parallel: sequences */
  MOE_AXIS_PP = 3,            /* pipeline parallel: layers */
  MOE_AXIS_ETP = 4,           /* inner width of an expert */
  MOE_AXIS_EP = 5,            /* experts of a layer */
  MOE_AXIS_EDP = 6            /* copies of the experts */
} moe_axis;

/* A group varies these axes and fixes the others. Every rank is in exactly one group of each kind, which may be itself alone. */
typedef enum moe_group_kind {
  MOE_GROUP_TP = 0, MOE_GROUP_CP = 1, MOE_GROUP_DP = 2, MOE_GROUP_PP = 3,
  MOE_GROUP_DP_CP = 4,        /* dp and cp: the ranks that split the tokens of a batch */
  MOE_GROUP_ETP = 5, MOE_GROUP_EP = 6, MOE_GROUP_EDP = 7,
  MOE_GROUP_STAGE = 8,        /* tp, cp and dp: all ranks of a pipeline stage */
  MOE_GROUP_REPLICA = 9,      /* tp, cp and pp: the ranks that work on the same sequences */
  MOE_GROUP_ENDS = 10         /* first and last stage of a pipeline; the stages between are alone */
} moe_group_kind;

/* The mesh of mesh.{tp,cp,dp,pp,etp,ep} and model.num_global_experts over `world_size` ranks (0: the configuration's `ranks`), as an
 * engine with that configuration has it: sizes that are 0 are filled. Needs no rank, thread or engine. INVALID_ARGUMENT names
 * mesh.<axis>, its value and the nearest that work. */
MOE_API moe_status* moe_mesh_create(const moe_config* config, int64_t world_size, moe_mesh** mesh);
MOE_API int64_t moe_mesh_world_size(const moe_mesh* mesh);
MOE_API moe_status* moe_mesh_axis_size(const moe_mesh* mesh, int32_t axis, int64_t* size);
/* Where a rank stands on an axis: 0 .. size-1. */
MOE_API moe_status* moe_mesh_coordinate(const moe_mesh* mesh, int32_t axis, int64_t rank, int64_t* coordinate);
/* All groups of a kind. Their first members are the ranks whose index in moe_mesh_group is 0. */
MOE_API moe_status* moe_mesh_num_groups(const moe_mesh* mesh, int32_t kind, int64_t* num_groups);
/* Of the group of this kind that `rank` is in: its size, and the rank's index in it. Either may be NULL. */
MOE_API moe_status* moe_mesh_group(const moe_mesh* mesh, int32_t kind, int64_t rank, int64_t* size, int64_t* index);
/* members[n], ascending; n must be the size of the group. */
MOE_API moe_status* moe_mesh_group_members(const moe_mesh* mesh, int32_t kind, int64_t rank, int64_t* members, int64_t n);
MOE_API void moe_mesh_destroy(moe_mesh* mesh);

/* Collective over this rank's group of that kind (moe_group_kind) in the engine's mesh, which it gives. The group is the engine's own, the
 * same one at every call: an error that ends it ends it for the engine's models, too. */
MOE_API moe_status* moe_group_from_mesh(moe_engine* engine, int32_t kind, moe_group** group);

/* ---- plans ------------------------------------------------------------------------------------------------------ */

typedef struct moe_plan moe_plan;       /* what a layout would be, worked out without starting a rank */

typedef struct moe_plan_options {
  size_t struct_size;
  const void* extension;
  /* NULL or "": none. Puts a mistake into the programs before they are checked: group_across_stages, unfused_send_recv,
   * opposite_group_order, missing_norm_all_reduce, missing_micro_batch. */
  const char* seeded_mistake;
  /* Rates of the machine for the predicted time, of one rank; 0: assumed (the text says what), or measured. */
  double gflops;              /* matrix products */
  double memory_gbs;          /* GB/s */
  double latency_us;          /* of one message */
  double bandwidth_gbs;       /* GB/s of a rank to the others */
  int32_t measure;            /* 1: rates that are 0 are measured here, as of ranks that all share this machine; takes some seconds */
  /* Routes to the busiest rank of an expert-parallel group over the mean of its ranks, >= 1; 0: 1, even routing. */
  double imbalance;
} moe_plan_options;

/* Any number of ranks on one thread of this process. Validates the configuration. A deadlock is not an error: see
 * moe_plan_is_free. A plan does not change; any thread may read it. */
MOE_API moe_status* moe_plan_create(const moe_config* config, const moe_plan_options* options, moe_plan** plan);
/* *is_free = 1: no rank can wait for ever; 0: *verdict names the ranks and operations that do, or the broken rule. verdict may
 * be NULL. */
MOE_API moe_status* moe_plan_is_free(const moe_plan* plan, int32_t* is_free, char** verdict);
/* For people: groups, experts, parameters and bytes of each rank, schedule, bubble, traffic, predicted time, verdict. */
MOE_API moe_status* moe_plan_text(const moe_plan* plan, char** text);
/* The same for programs: JSON {ranks, mesh, parameters, experts, groups, stages, schedule, traffic, machine, imbalance,
 * step_seconds, tokens_per_second, warnings, verdict}. */
MOE_API moe_status* moe_plan_json(const moe_plan* plan, char** json);
/* The schedule as a picture. */
MOE_API moe_status* moe_plan_svg(const moe_plan* plan, char** svg);
MOE_API void moe_plan_destroy(moe_plan* plan);

/* ---- flight recorder -------------------------------------------------------------------------------------------- */

/* Every engine of several ranks records its last 4096 operations. Of the files in `flight_dir` (of this machine's ranks or, in a shared
 * folder, of all), in words: how each rank ended or what it is in, who waits for whom in which operation of which layer, and the
 * rank where it began. Reads only; works while ranks run, are stopped, or after they were killed. NOT_FOUND when there is no file. */
MOE_API moe_status* moe_flight_report(const char* flight_dir, char** text);
/* The same operations as a trace of all ranks in Chrome's JSON format (Perfetto, chrome://tracing). */
MOE_API moe_status* moe_flight_trace(const char* flight_dir, char** json);

/* ---- schedules against the clock -------------------------------------------------------------------------------- */

typedef struct moe_schedule_options {
  size_t struct_size;
  const void* extension;
  const char* kind;           /* gpipe, 1f1b, interleaved, zero_bubble */
  int64_t stages;             /* P >= 1 */
  int64_t virtual_stages;     /* v per stage; 0: 2 with interleaved, else 1 */
  int64_t micro_batches;      /* M >= 1; interleaved: a multiple of P */
  double forward_ms;          /* of a stage's layers for one micro-batch */
  double backward_ms;         /* of inputs and weights */
  double backward_weight_ms;  /* the part of backward_ms for weights, which zero_bubble does later */
  int64_t steps;              /* measured after one that is not; >= 1 */
} moe_schedule_options;

typedef struct moe_schedule_timing {
  size_t struct_size;
  const void* extension;
  /* Share of the stages' time without computing, from the first forward to the last backward. By the formula (idle time of a
   * stage: gpipe, 1f1b (P-1)(F+B); interleaved (P-1)(F+B)/v; zero_bubble (P-1)(F+B-2W); over that and M(F+B)); the median of
   * the measured steps, the lowest and the highest. */
  double formula, bubble, bubble_low, bubble_high;
  double step_seconds;        /* median */
  int32_t busy_loop;          /* 1: stages computed in a busy loop, a core each; 0: more stages than cores, they waited for the clock */
} moe_schedule_timing;

/* Runs the engine's program of a schedule with real messages between stages, which are threads of this process, over layers that
 * compute nothing and only take the time given. */
MOE_API moe_status* moe_measure_schedule(const moe_schedule_options* options, moe_schedule_timing* timing);

#ifdef __cplusplus
}
#endif
#endif /* MOE_CAPI_MOE_H_ */
