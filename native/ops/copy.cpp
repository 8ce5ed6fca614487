#include "ops/copy.hpp"

#include "array/error.hpp"

namespace gpuinterop::ops {

void copy_strided(const Array&, const Array&, const char* where) {
  fail(Kind::Library, where, "a copy kernel", "none", "make the array contiguous first");
}
void fill_strided(const Array&, const void*, const char* where) {
  fail(Kind::Library, where, "a fill kernel", "none", "make the array contiguous first");
}

}  // namespace gpuinterop::ops
