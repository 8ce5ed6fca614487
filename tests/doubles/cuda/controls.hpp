// Functions by which tests steer the fake driver and read what it has seen; a part of fakecuda.cpp.
void fakecuda_set_delay_us(long us) { machine().delay_us.store(us); }
void fakecuda_set_capacity(size_t most) { machine().capacity.store(most); }
void fakecuda_set_compute_major(int major) { machine().compute_major.store(major); }
void fakecuda_keep_user_objects(bool keeps) { machine().keeps_user_objects.store(keeps); }
void fakecuda_set_memory(int device, int64_t bytes) {
  LOCKED();
  machine().devices[size_t(device)]->total = bytes;
}
int64_t fakecuda_used(int device) {
  LOCKED();
  return machine().devices[size_t(device)]->used;
}
// A new stream under the handle of one that was destroyed, as the driver may give it.
void fakecuda_give_handle_again(CUstream handle) {
  LOCKED();
  auto* s = reinterpret_cast<Stream*>(handle);
  while (s->heir) s = s->heir;
  s->heir = new_stream(s->context, s->blocking);
}
// The next calls of `name` fail with `code`, after `skip` that do not.
void fakecuda_fail(const char* name, int code, int skip, int count) {
  std::lock_guard lock(log_lock);
  (*injected)[name] = {code, skip, count};
}
int fakecuda_calls(const char* name) {
  std::lock_guard lock(log_lock);
  auto it = counts->find(name);
  return it == counts->end() ? 0 : it->second;
}
const char* fakecuda_log() {
  static thread_local std::string text;
  std::lock_guard lock(log_lock);
  text.clear();
  for (const std::string& line : *calls) text += line + "\n";
  return text.c_str();
}
void fakecuda_clear_log() {
  std::lock_guard lock(log_lock);
  calls->clear();
  counts->clear();
}
// Misuse that was seen: one line each, empty when there was none.
const char* fakecuda_faults() {
  static thread_local std::string text;
  LOCKED();
  text.clear();
  for (const std::string& line : machine().faults) text += line + "\n";
  return text.c_str();
}
