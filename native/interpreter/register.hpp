// Registration functions of the parts of gpuinterop._core.
#pragma once

#include <nanobind/nanobind.h>

#include "interpreter/text_arguments.hpp"  // every file that binds functions takes texts alike

namespace gpuinterop {

void register_hooks(nanobind::module_& m);                // interpreter/hooks.cpp
void register_served(nanobind::module_& m);               // interpreter/served.cpp
void register_blocks(nanobind::module_& m);               // blocks.cpp
void register_array(nanobind::module_& m);                // arrays/type.cpp
void register_cuda(nanobind::module_& m);                 // devices/bindings.cpp
void register_streams(nanobind::module_& m);              // devices/stream_objects.cpp
void register_exchange(nanobind::module_& m);             // exchange/bindings.cpp
void register_borrowing(nanobind::module_& m);            // exchange/foreign_memory.cpp
void register_converter_functions(nanobind::module_& m);  // exchange/converter_function.cpp
void register_ops(nanobind::module_& m);                  // elementwise/bindings.cpp
void register_functions();                                // elementwise/functions.cpp
void register_numpy_functions(nanobind::module_& m);      // elementwise/operators.cpp
void register_programs(nanobind::module_& m);             // elementwise/host_program.cpp
void register_downloads(nanobind::module_& m);            // elementwise/download.cpp
void register_indexing(nanobind::module_& m);             // index/calls.cpp
void register_joining();                                  // index/join.cpp
void register_views(nanobind::module_& m);                // index/views.cpp
void register_converters(nanobind::module_& m);           // exchange/traits.cpp
void register_plans(nanobind::module_& m);                // reduce/bindings.cpp
void register_planned(nanobind::module_& m);              // reduce/planned.cpp
void register_reductions(nanobind::module_& m);           // reduce/calls.cpp
void register_reduced_dimensions(nanobind::module_& m);   // reduce/reduced_dimensions.cpp
void register_recorder(nanobind::module_& m);             // captures/bindings.cpp
void register_replays(nanobind::module_& m);              // captures/replay_cache.cpp
void register_blas(nanobind::module_& m);                 // product/bindings.cpp
void register_linalg(nanobind::module_& m);               // linalg/routines.cpp
void register_fft(nanobind::module_& m);                  // fft/transforms.cpp
void register_creation(nanobind::module_& m);             // elementwise/creation.cpp
void register_random(nanobind::module_& m);               // random/generator.cpp
void register_sorting(nanobind::module_& m);              // sorting/few.cpp
void register_prepared_calls(nanobind::module_& m);       // fusion/prepared_calls.cpp

}  // namespace gpuinterop
