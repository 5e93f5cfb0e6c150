// The C API as the trainer likes to call it: handles that free themselves, failures as values.
#ifndef MOE_TRAINER_API_H_
#define MOE_TRAINER_API_H_

#include <memory>
#include <string>

#include "capi/moe.h"
#include "nlohmann/json.hpp"

namespace moe::trainer {

using Json = nlohmann::ordered_json;

// How a command ends: 0 well, 1 failed, 2 misused, 130 interrupted.
struct Result {
  int exit_code = 0;
  std::string message;
  bool from_library = false;   // then the other ranks know already
  bool ok() const { return exit_code == 0; }
  static Result Misuse(std::string m) { return {2, std::move(m), false}; }
  static Result Failure(std::string m) { return {1, std::move(m), false}; }
};

// Takes the status over. Bad arguments are misuse, all else is failure.
inline Result Check(moe_status* s) {
  if (s == nullptr) return {};
  const int32_t code = moe_status_code(s);
  const bool misuse = code == MOE_INVALID_ARGUMENT || code == MOE_NOT_FOUND || code == MOE_UNIMPLEMENTED || code == MOE_PERMISSION_DENIED || code == MOE_ALREADY_EXISTS ||
                      code == MOE_FAILED_PRECONDITION;
  Result r{misuse ? 2 : 1, moe_status_message(s), true};
  moe_status_destroy(s);
  return r;
}
// What goes wrong once a run is under way is a failure, whatever its code.
inline Result CheckRunning(moe_status* s) {
  Result r = Check(s);
  if (r.exit_code == 2) r.exit_code = 1;
  return r;
}

#define MOE_TRY(expr)                              \
  do {                                             \
    ::moe::trainer::Result moe_result_ = (expr);   \
    if (!moe_result_.ok()) return moe_result_;     \
  } while (0)

template <typename T, void (*destroy)(T*)>
struct Destroyer { void operator()(T* p) const { destroy(p); } };
using Config = std::unique_ptr<moe_config, Destroyer<moe_config, moe_config_destroy>>;
using Engine = std::unique_ptr<moe_engine, Destroyer<moe_engine, moe_engine_destroy>>;
using Group = std::unique_ptr<moe_group, Destroyer<moe_group, moe_group_destroy>>;
using Layer = std::unique_ptr<moe_layer, Destroyer<moe_layer, moe_layer_destroy>>;
using Model = std::unique_ptr<moe_model, Destroyer<moe_model, moe_model_destroy>>;
using Plan = std::unique_ptr<moe_plan, Destroyer<moe_plan, moe_plan_destroy>>;
using Inproc = std::unique_ptr<moe_inproc, Destroyer<moe_inproc, moe_inproc_destroy>>;

// Takes over a string of the library.
inline std::string Take(char* s) {
  std::string out = s ? s : "";
  moe_string_destroy(s);
  return out;
}

// A field of the configuration that exists.
inline std::string GetText(const moe_config* c, const char* path) {
  char* v = nullptr;
  moe_status_destroy(moe_config_get(c, path, &v));
  return Take(v);
}
inline int64_t GetInt(const moe_config* c, const char* path) { return std::strtoll(GetText(c, path).c_str(), nullptr, 10); }
inline double GetDouble(const moe_config* c, const char* path) { return std::strtod(GetText(c, path).c_str(), nullptr); }
inline bool GetBool(const moe_config* c, const char* path) { return GetText(c, path) == "true"; }

}  // namespace moe::trainer
#endif  // MOE_TRAINER_API_H_
