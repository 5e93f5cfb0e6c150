/* The system's protobuf is not compiled with the thread sanitizer, which therefore does not see how it publishes the text of a default
 * value (a mutex and an atomic pointer, LazyString::Init). Without the sanitizer nobody calls this. */
const char* __tsan_default_suppressions(void);
const char* __tsan_default_suppressions(void) { return "race:google::protobuf::internal::LazyString::Init\n"; }
