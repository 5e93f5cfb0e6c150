#include <algorithm>

#include "nlohmann/json.hpp"
#include "transport/descriptor.h"
#include "transport/flight/report.h"

namespace moe::flight {

std::string Trace(const std::vector<RankFlight>& ranks) {
  using Json = nlohmann::ordered_json;
  int64_t begin = INT64_MAX, end = 0;
  for (const RankFlight& r : ranks) {
    for (const Record& record : r.records) {
      begin = std::min(begin, r.Wall(record.posted));
      end = std::max({end, r.Wall(record.posted), r.Wall(record.done)});
    }
  }
  Json events = Json::array();
  for (const RankFlight& r : ranks) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", r.rank}, {"args", {{"name", absl::StrCat("rank ", r.rank, " on ", r.host)}}}});
    events.push_back({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", r.rank}, {"args", {{"sort_index", r.rank}}}});
    // Groups' ids are large: rows are numbered.
    std::map<int64_t, int64_t> row;
    for (const auto& [id, g] : r.groups) {
      row.emplace(id, static_cast<int64_t>(row.size()));
      events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", r.rank}, {"tid", row[id]}, {"args", {{"name", absl::StrCat("group ", id, " of ", g.size, " ranks")}}}});
    }
    for (const Record& record : r.records) {
      const int64_t from = r.Wall(record.posted), until = std::max(from, record.done > 0 ? r.Wall(record.done) : end);
      const std::string kind = Name(static_cast<MessageKind>(record.kind));
      Json args = {{"operation", ToString(record)}, {"sequence", record.sequence}, {"index", record.index}, {"bytes", record.bytes}};
      if (record.started > 0) args["first_message_us"] = 1e-3 * static_cast<double>(record.started - record.posted);
      if (record.state != OpState::kDone) args["ended"] = record.state == OpState::kFailed ? "with an error" : "not";
      events.push_back({{"ph", "X"}, {"name", record.what[0] ? std::string(record.what) : kind}, {"cat", kind}, {"pid", r.rank}, {"tid", row.emplace(record.group, static_cast<int64_t>(row.size())).first->second},
                        {"ts", 1e-3 * static_cast<double>(from - begin)}, {"dur", 1e-3 * static_cast<double>(until - from)}, {"args", args}});
    }
  }
  return Json({{"displayTimeUnit", "ms"}, {"traceEvents", events}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moe::flight
