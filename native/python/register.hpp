// Registration functions of the parts of gpuinterop._core.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

void register_hooks(nanobind::module_& m);                // python/hooks.cpp
void register_blocks(nanobind::module_& m);               // python/blocks.cpp
void register_array(nanobind::module_& m);                // python/array_type.cpp
void register_cuda(nanobind::module_& m);                 // python/cuda_bindings.cpp
void register_exchange(nanobind::module_& m);             // python/exchange_bindings.cpp
void register_borrowing(nanobind::module_& m);            // python/foreign_memory.cpp
void register_converter_functions(nanobind::module_& m);  // python/converter_function.cpp
void register_ops(nanobind::module_& m);                  // python/ops_bindings.cpp
void register_indexing(nanobind::module_& m);             // python/indexing_bindings.cpp
void register_converters(nanobind::module_& m);           // python/converter_bindings.cpp
void register_plans(nanobind::module_& m);                // python/launch_plan_bindings.cpp
void register_reductions(nanobind::module_& m);           // python/reduce_bindings.cpp
void register_recorder(nanobind::module_& m);             // python/recorder_bindings.cpp
void register_replays(nanobind::module_& m);              // python/replays.cpp
void register_blas(nanobind::module_& m);                 // python/blas_bindings.cpp
void register_creation(nanobind::module_& m);             // python/creation.cpp
void register_prepared_calls(nanobind::module_& m);       // python/prepared_calls.cpp

}  // namespace gpuinterop
