// Part of fakecuda.cpp: modules and launches. A kernel here is a host function
//   extern "C" void NAME(const unsigned* grid, const unsigned* block, unsigned shared, void** args)
// with the sizes of its parameters, closed by a zero, in
//   extern "C" const unsigned NAME_parameters[]
// which cuFuncGetParamInfo returns; without the list it returns an error.
// It comes from a shared object (module image "FAKECUDA:/path/to.so"). Kernels of real images (cubin,
// fatbin, PTX) are accepted and do nothing; a cubin and a PTX must have a symbol of the name.

using KernelFunction = void (*)(const unsigned* grid, const unsigned* block, unsigned shared, void** args);
struct FakeKernel {
  std::string name;
  KernelFunction run;  // null: does nothing
  std::vector<unsigned> parameters;
  bool parameters_known;
  std::map<int, int> attributes;
};
struct FakeModule {
  void* library = nullptr;
  std::string text;    // of PTX
  std::string symbols;  // of a cubin: its bytes, in which every symbol ends with a zero
};

static std::vector<unsigned> sizes_of(const unsigned* list) {
  std::vector<unsigned> out;
  while (list && *list) out.push_back(*list++);
  return out;
}

// All bytes up to the end of the last section; nothing where this is no cubin.
static std::string cubin(const char* bytes) {
  Elf64_Ehdr head;
  if (std::strncmp(bytes, ELFMAG, 4) || std::strlen(bytes) < 7 || bytes[EI_CLASS] != ELFCLASS64) return "";
  std::memcpy(&head, bytes, sizeof head);
  if (head.e_machine != 190 || head.e_shentsize != sizeof(Elf64_Shdr)) return "";
  size_t end = head.e_shoff + size_t(head.e_shnum) * sizeof(Elf64_Shdr);
  for (int i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes + head.e_shoff + size_t(i) * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, size_t(section.sh_offset + section.sh_size));
  }
  return std::string(bytes, end);
}

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned n, CUjit_option* options, void** values) {
  ENTER(cuModuleLoadDataEx);
  NEED_CONTEXT();
  (void)context;
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto* bytes = static_cast<const char*>(image);
  auto* module = new FakeModule;
  if (!std::strncmp(bytes, "FAKECUDA:", 9)) {
    module->library = dlopen(bytes + 9, RTLD_NOW | RTLD_LOCAL);
  } else if (!std::strncmp(bytes, "\x7f" "ELF", 4) || !std::memcmp(bytes, "\x50\xed\x55\xba", 4)) {
    module->symbols = cubin(bytes);
    *out = reinterpret_cast<CUmodule>(module);
    return CUDA_SUCCESS;
  } else if (std::strstr(bytes, ".version")) {
    module->text = bytes;
  }
  if (module->library || !module->text.empty()) {
    *out = reinterpret_cast<CUmodule>(module);
    return CUDA_SUCCESS;
  }
  for (unsigned i = 0; i < n; ++i)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), "fake log: not an image");
  delete module;
  return CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleUnload(CUmodule m) {
  ENTER(cuModuleUnload);
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  delete reinterpret_cast<FakeModule*>(m);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* out, CUmodule m, const char* name) {
  ENTER(cuModuleGetFunction);
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto* module = reinterpret_cast<FakeModule*>(m);
  FakeKernel kernel{name, nullptr, {}, false, {}};
  if (module->library) {
    kernel.run = reinterpret_cast<KernelFunction>(dlsym(module->library, name));
    std::string list = std::string(name) + "_parameters";
    auto* sizes = static_cast<const unsigned*>(dlsym(module->library, list.c_str()));
    kernel.parameters = sizes_of(sizes);
    kernel.parameters_known = sizes != nullptr;
    if (!kernel.run) return CUDA_ERROR_NOT_FOUND;
  } else if (!module->text.empty() && module->text.find(name) == std::string::npos) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (!module->symbols.empty() && module->symbols.find('\0' + kernel.name + '\0') == std::string::npos)
    return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(new FakeKernel(kernel));
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* out, CUfunction_attribute what, CUfunction f) {
  ENTER(cuFuncGetAttribute);
  auto& attributes = reinterpret_cast<FakeKernel*>(f)->attributes;
  if (what == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *out = 1024;
  else *out = attributes.count(what) ? attributes[what] : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t* offset, size_t* size) {
  ENTER(cuFuncGetParamInfo);
  auto* kernel = reinterpret_cast<FakeKernel*>(f);
  if (!kernel->parameters_known) return CUDA_ERROR_NOT_SUPPORTED;
  if (index >= kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i <= index; ++i) {
    *size = kernel->parameters[i];
    *offset = (*offset + *size - 1) / *size * *size;  // aligned as numbers and addresses are
    if (i < index) *offset += *size;
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
  ENTER(cuFuncSetAttribute);
  reinterpret_cast<FakeKernel*>(f)->attributes[what] = value;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream handle, void** args, void**) {
  ENTER_STREAM(cuLaunchKernel, s, handle);
  if (s->context != context) {
    machine().fault("a launch on a stream of another context");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto* kernel = reinterpret_cast<FakeKernel*>(f);
  unsigned long long threads = 1ull * bx * by * bz;
  if (!gx || !gy || !gz || !threads || threads > 1024 || bz > 64 || gy > 65535 || gz > 65535) return CUDA_ERROR_INVALID_VALUE;
  int allowed = std::max(49152, kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
  if (shared > unsigned(allowed)) return CUDA_ERROR_INVALID_VALUE;
  // As on the real device the arguments are copied now and read later.
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  for (size_t i = 0; i < kernel->parameters.size(); ++i) {
    auto* from = static_cast<char*>(args[i]);
    values->emplace_back(from, from + kernel->parameters[i]);
  }
  std::array<unsigned, 3> grid{gx, gy, gz}, block{bx, by, bz};
  enqueue(s, [=, run = kernel->run] {
    std::vector<void*> pointers;
    for (auto& value : *values) pointers.push_back(value.data());
    if (run) run(grid.data(), block.data(), shared, pointers.data());
  });
  return CUDA_SUCCESS;
}
