// Opens CUDA's libraries, such as cuBLAS, and loads their functions. An open library is never closed.
#pragma once

#include <string>

namespace gpuinterop {

// The handle of dlopen. Kind::Library error with the loader's reason.
void* open_library(const std::string& path, const char* title);
// The function, or null.
void* find_symbol(void* library, const char* symbol) noexcept;
// The function. Kind::Library error for a library that is too old to have it.
void* require_symbol(void* library, const char* symbol, const char* title);

// Raise an error for a status that is not 0; `out_of_memory` is the library's status for no memory, `type` its type.
void require_success(int status, int out_of_memory, const char* type, const char* call,
                     const char* where);

template <class F>
void load_symbol(void* library, const char* symbol, const char* title, F* into) {
  *into = reinterpret_cast<F>(require_symbol(library, symbol, title));
}

}  // namespace gpuinterop
