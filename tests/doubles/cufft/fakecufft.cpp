// Stands for cuFFT where the fake driver stands for CUDA: sums of products in double precision on host memory, queued on
// the stream, with the arguments checked. Complex-to-real transforms spoil their operand, as cuFFT's do. A transform that
// runs after its plan was destroyed leaves its result as it is.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "../queued_work.hpp"

namespace {

using Complex = std::complex<double>;
constexpr int kInvalidPlan = 1, kInvalidValue = 4, kInvalidSize = 8;
constexpr size_t kWork = 512;

struct Steps {
  long long embed[3] = {}, stride = 0, distance = 0;
  long long at(int rank, const long long* index, long long batch) const {
    long long place = index[0];
    for (int k = 1; k < rank; ++k) place = place * embed[k] + index[k];
    return batch * distance + place * stride;
  }
};

struct Plan {
  int rank = 0, type = 0;
  long long n[3] = {}, batch = 0;
  Steps in, out;
  void *stream = nullptr, *work = nullptr;
  std::shared_ptr<int> tables = std::make_shared<int>();
};

std::map<int, Plan> plans;
std::mutex lock;
int last = 0;

// Along one axis of a contiguous array.
void along(std::vector<Complex>& x, long long outer, long long n, long long inner, int direction) {
  const double turn = direction * 2 * std::acos(-1.0) / double(n);
  std::vector<Complex> line(static_cast<size_t>(n));
  for (long long o = 0; o < outer; ++o)
    for (long long i = 0; i < inner; ++i) {
      Complex* first = x.data() + o * n * inner + i;
      for (long long k = 0; k < n; ++k) {
        Complex sum = 0;
        for (long long j = 0; j < n; ++j) sum += first[j * inner] * std::polar(1.0, turn * double(j * k % n));
        line[size_t(k)] = sum;
      }
      for (long long k = 0; k < n; ++k) first[k * inner] = line[size_t(k)];
    }
}

template <class Visit>
void each(const Plan& p, long long last_length, Visit&& visit) {
  long long index[3] = {}, lengths[3];
  for (int k = 0; k < p.rank; ++k) lengths[k] = k == p.rank - 1 ? last_length : p.n[k];
  long long size = 1;
  for (int k = 0; k < p.rank; ++k) size *= lengths[k];
  for (long long flat = 0; flat < size; ++flat) {
    long long rest = flat;
    for (int k = p.rank - 1; k >= 0; --k) index[k] = rest % lengths[k], rest /= lengths[k];
    visit(index);
  }
}

template <class In, class Out>
void transform(const Plan& p, In* from, Out* to, int direction) {
  constexpr bool from_real = std::is_floating_point_v<In>, to_real = std::is_floating_point_v<Out>;
  const long long n = p.n[p.rank - 1], half = n / 2 + 1;
  long long size = 1;
  for (int k = 0; k < p.rank; ++k) size *= p.n[k];
  for (long long b = 0; b < p.batch; ++b) {
    std::vector<Complex> x(static_cast<size_t>(size));
    auto place = [&](const long long* index) {
      long long at = 0;
      for (int k = 0; k < p.rank; ++k) at = at * p.n[k] + index[k];
      return size_t(at);
    };
    each(p, to_real ? half : n, [&](const long long* index) { x[place(index)] = Complex(from[p.in.at(p.rank, index, b)]); });
    if (to_real) {
      // Both steps by one transform of the whole, whose other half is the conjugate of the first.
      each(p, half, [&](const long long* index) {
        long long other[3];
        for (int k = 0; k < p.rank; ++k) other[k] = (p.n[k] - index[k]) % p.n[k];
        if (other[p.rank - 1] >= half) x[place(other)] = std::conj(x[place(index)]);
      });
      each(p, half, [&](const long long* index) { from[p.in.at(p.rank, index, b)] = In(77); });
    }
    long long outer = 1;
    for (int k = 0; k < p.rank; ++k) {
      along(x, outer, p.n[k], size / outer / p.n[k], direction);
      outer *= p.n[k];
    }
    each(p, from_real ? half : n, [&](const long long* index) {
      const Complex value = x[place(index)];
      Out& target = to[p.out.at(p.rank, index, b)];
      if constexpr (to_real) target = Out(value.real());
      else target = Out(value);
    });
  }
}

template <class In, class Out>
int execute(int number, int type, void* from, void* to, int direction) {
  std::lock_guard<std::mutex> guard(lock);
  const auto found = plans.find(number);
  if (found == plans.end() || found->second.type != type) return kInvalidPlan;
  const Plan& p = found->second;
  constexpr size_t pair = std::max(sizeof(In), sizeof(Out));  // of complex numbers
  if (!from || !to || !p.work || reinterpret_cast<uintptr_t>(p.work) % 256) return kInvalidValue;
  if (reinterpret_cast<uintptr_t>(from) % pair || reinterpret_cast<uintptr_t>(to) % pair) return kInvalidValue;
  const std::weak_ptr<int> tables = p.tables;
  Plan steps = p;
  steps.tables.reset();
  queue(p.stream, [=] {
    if (!tables.expired()) transform(steps, static_cast<In*>(from), static_cast<Out*>(to), direction);
  });
  return 0;
}

}  // namespace

extern "C" {
int fakecufft_plans() { return last; }  // made so far

int cufftCreate(int* plan) {
  std::lock_guard<std::mutex> guard(lock);
  plans[*plan = ++last];
  return 0;
}
int cufftDestroy(int plan) {
  std::lock_guard<std::mutex> guard(lock);
  return plans.erase(plan) ? 0 : kInvalidPlan;
}
int cufftSetAutoAllocation(int, int automatic) { return automatic ? kInvalidValue : 0; }
int cufftMakePlanMany64(int plan, int rank, long long* n, long long* in_embed, long long in_stride, long long in_distance,
                        long long* out_embed, long long out_stride, long long out_distance, int type, long long batch,
                        size_t* work) {
  if (rank < 1 || rank > 3 || batch < 1) return kInvalidSize;
  Plan p;
  p.rank = rank, p.type = type, p.batch = batch;
  p.in.stride = in_stride, p.in.distance = in_distance, p.out.stride = out_stride, p.out.distance = out_distance;
  for (int k = 0; k < rank; ++k) {
    if (n[k] < 1) return kInvalidSize;
    p.n[k] = n[k], p.in.embed[k] = in_embed[k], p.out.embed[k] = out_embed[k];
  }
  std::lock_guard<std::mutex> guard(lock);
  plans[plan] = p;
  *work = kWork;
  return 0;
}
int cufftSetStream(int plan, void* stream) {
  std::lock_guard<std::mutex> guard(lock);
  plans[plan].stream = stream;
  return 0;
}
int cufftSetWorkArea(int plan, void* work) {
  std::lock_guard<std::mutex> guard(lock);
  plans[plan].work = work;
  return 0;
}
using C = std::complex<float>;
using Z = std::complex<double>;
int cufftExecC2C(int plan, void* from, void* to, int direction) { return execute<C, C>(plan, 0x29, from, to, direction); }
int cufftExecZ2Z(int plan, void* from, void* to, int direction) { return execute<Z, Z>(plan, 0x69, from, to, direction); }
int cufftExecR2C(int plan, void* from, void* to) { return execute<float, C>(plan, 0x2a, from, to, -1); }
int cufftExecD2Z(int plan, void* from, void* to) { return execute<double, Z>(plan, 0x6a, from, to, -1); }
int cufftExecC2R(int plan, void* from, void* to) { return execute<C, float>(plan, 0x2c, from, to, 1); }
int cufftExecZ2D(int plan, void* from, void* to) { return execute<Z, double>(plan, 0x6c, from, to, 1); }
}
