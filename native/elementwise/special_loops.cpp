// Functions that NumPy lacks, computed in float64.
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "elementwise/own_loops.hpp"

namespace gpuinterop::ops {

namespace {

double gi_double(unsigned long long bits) { return std::bit_cast<double>(bits); }
#define GI_FN inline
#include "../../gpuinterop/elementwise/kernels/digamma.cuh"
#undef GI_FN

// Newton's method, corrected for the curvature. Winitzki's first approximation is good to 2e-3 everywhere; the error
// squares with each step.
double inverse_of_erf(double x) {
  constexpr double kPi = std::numbers::pi, kSlope = 2 * std::numbers::inv_sqrtpi;
  const double p = std::fabs(x);
  if (p == 1) return std::copysign(HUGE_VAL, x);
  if (!(p < 1)) return NAN;
  const double log = std::log1p(-p * p), b = 2 / (kPi * 0.147) + log / 2;
  double y = std::sqrt(std::sqrt(b * b - log / 0.147) - b);
  for (int i = 0; i < 4; ++i) {
    // Near 1 the complement keeps the digits that erf(y) - p would lose.
    double error = p > 0.5 ? 1 - p - std::erfc(y) : std::erf(y) - p;
    error /= kSlope * std::exp(-y * y);
    y -= error / (1 + y * error);
  }
  return std::copysign(y, x);
}

template <double (*F)(double)>
void each(char** args, const intptr_t* n, const intptr_t* steps, void*) {
  for (intptr_t i = 0; i < *n; ++i) {
    double x;
    std::memcpy(&x, args[0] + i * steps[0], sizeof x);
    x = F(x);
    std::memcpy(args[1] + i * steps[1], &x, sizeof x);
  }
}

}  // namespace

const SpecialLoop special_loops[] = {
    {"erf", each<[](double x) { return std::erf(x); }>},
    {"erfc", each<[](double x) { return std::erfc(x); }>},
    {"erfinv", each<inverse_of_erf>},
    {"gamma", each<[](double x) { return std::tgamma(x); }>},
    {"lgamma", each<[](double x) { return std::lgamma(x); }>},
    {"digamma", each<gi_digamma>},
};

}  // namespace gpuinterop::ops
