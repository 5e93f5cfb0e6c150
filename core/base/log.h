// One sink for everything that the library has to say; the caller owns it and decides where it goes.
// A message is logged once, where the cause is first known.
#ifndef MOE_CORE_BASE_LOG_H_
#define MOE_CORE_BASE_LOG_H_

#include <functional>
#include <string>

namespace moe {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// May be empty (nothing is logged). Called from any thread of the engine that holds it.
using LogSink = std::function<void(LogLevel level, const std::string& message)>;

inline void Log(const LogSink& sink, LogLevel level, const std::string& message) { if (sink) sink(level, message); }

}  // namespace moe
#endif  // MOE_CORE_BASE_LOG_H_
