#include "fft/cufft.hpp"

#include "devices/shared_library.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::cufft {

namespace {

bool fft_opened = false;
Library fft_functions;

}  // namespace

void open(const std::string& path) {
  if (fft_opened) return;
  void* library = open_library(path, "cuFFT");
#define X(name, symbol, arguments) load_symbol(library, #symbol, "cuFFT", &fft_functions.name);
  GPUINTEROP_CUFFT(X)
#undef X
  fft_opened = true;
}

bool is_open() noexcept { return fft_opened; }
const Library& library() noexcept { return fft_functions; }

void check(int status, const char* call, const char* where) {
  require_success(status, 2, "cufftResult", call, where);
}

}  // namespace gpuinterop::cufft
