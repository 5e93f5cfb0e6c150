#include "capi/boundary.h"
#include "capi/engine_state.h"
#include "core/config/config_io.h"
#include "core/config/validate.h"
#include "core/plan/validate.h"

using moe::capi::Catch;
using moe::capi::NullArgument;
using moe::capi::ToString;

extern "C" {

moe_status* moe_config_create(moe_config** config) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    *config = new moe_config();
    return absl::OkStatus();
  });
}

moe_status* moe_config_load(const char* path, moe_config** config) {
  return Catch([&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    if (config == nullptr) return NullArgument("config");
    MOE_ASSIGN_OR_RETURN(moe::config::Config c, moe::LoadConfig(path));
    *config = new moe_config{std::move(c)};
    return absl::OkStatus();
  });
}

moe_status* moe_config_parse(const char* text, moe_config** config) {
  return Catch([&]() -> absl::Status {
    if (text == nullptr) return NullArgument("text");
    if (config == nullptr) return NullArgument("config");
    MOE_ASSIGN_OR_RETURN(moe::config::Config c, moe::ParseConfig(text, "configuration"));
    *config = new moe_config{std::move(c)};
    return absl::OkStatus();
  });
}

moe_status* moe_config_set(moe_config* config, const char* path, const char* value) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (path == nullptr) return NullArgument("path");
    if (value == nullptr) return NullArgument("value");
    return moe::SetConfigField(&config->config, path, value);
  });
}

moe_status* moe_config_get(const moe_config* config, const char* path, char** value) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (path == nullptr) return NullArgument("path");
    if (value == nullptr) return NullArgument("value");
    MOE_ASSIGN_OR_RETURN(const std::string text, moe::GetConfigField(config->config, path));
    *value = ToString(text);
    return absl::OkStatus();
  });
}

moe_status* moe_config_validate(const moe_config* config) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    MOE_RETURN_IF_ERROR(moe::ValidateConfig(config->config, *moe::MakeDefaultRegistry()));
    return moe::ValidateLayout(config->config);
  });
}

moe_status* moe_config_to_text(const moe_config* config, int32_t full, char** text) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (text == nullptr) return NullArgument("text");
    *text = ToString(moe::ConfigToText(config->config, full != 0));
    return absl::OkStatus();
  });
}

moe_status* moe_config_to_json(const moe_config* config, int32_t full, char** json) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (json == nullptr) return NullArgument("json");
    *json = ToString(moe::ConfigToJson(config->config, full != 0));
    return absl::OkStatus();
  });
}

moe_status* moe_config_describe(char** json) {
  return Catch([&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    *json = ToString(moe::DescribeConfig(moe::MakeDefaultRegistry().get()));
    return absl::OkStatus();
  });
}

moe_status* moe_config_copy(const moe_config* config, moe_config** copy) {
  return Catch([&]() -> absl::Status {
    if (config == nullptr) return NullArgument("config");
    if (copy == nullptr) return NullArgument("copy");
    *copy = new moe_config{config->config};
    return absl::OkStatus();
  });
}

void moe_config_destroy(moe_config* config) { delete config; }

}  // extern "C"
