#include "elementwise/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace gpuinterop::ops {

namespace {

struct Term {
  int64_t step;   // bytes, positive
  int64_t limit;  // the index runs from 0 to limit
};
using Wide = __int128;  // sums of terms exceed 64 bits for extreme layouts

constexpr int kMaxTerms = 2 * kMaxDims + 2;
constexpr int64_t kMaxVisits = 2000;  // more visits would take longer than a copy

// Is sum(step * index) == target for some indices? A bounded linear Diophantine equation with few terms. The
// search tries the largest steps first, with two exact cuts at each of them: what the other terms can still
// reach, and the greatest common divisor of their steps.
struct Search {
  Term terms[kMaxTerms];
  Wide reach[kMaxTerms + 1];       // from each term on, the largest sum
  int64_t divisor[kMaxTerms + 1];  // and the common divisor of the steps
  int count = 0;
  int64_t visits = 0;

  void add(int64_t step, int64_t limit) {
    if (step && limit) terms[count++] = {step, limit};
  }
  void prepare() {
    std::sort(terms, terms + count, [](const Term& a, const Term& b) { return a.step < b.step; });
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const Term t = terms[i];
      Term* last = kept ? &terms[kept - 1] : nullptr;
      // Merges steps that fill each other's gaps: together they reach every multiple of the smaller step.
      // This is the usual nested layout.
      if (last && t.step % last->step == 0 && t.step / last->step <= last->limit + 1)
        last->limit += t.limit * (t.step / last->step);
      else
        terms[kept++] = t;
    }
    count = kept;
    std::reverse(terms, terms + count);
    reach[count] = 0;
    divisor[count] = 0;
    for (int i = count - 1; i >= 0; --i) {
      reach[i] = reach[i + 1] + Wide{terms[i].step} * terms[i].limit;
      divisor[i] = std::gcd(terms[i].step, divisor[i + 1]);
    }
  }
  // Also true if kMaxVisits visits find no answer.
  bool solve(int i, Wide target) {
    if (target == 0) return true;
    if (target < 0 || target > reach[i] || target % divisor[i] != 0) return false;
    if (i == count - 1) return true;
    const Term& t = terms[i];
    const Wide least = (target - reach[i + 1] + t.step - 1) / t.step;
    const Wide most = std::min<Wide>(t.limit, target / t.step);
    // Only indices that leave a multiple of the other steps' divisor can be solutions; they are periodic.
    const int64_t period = divisor[i + 1] / divisor[i];
    bool found = false;
    for (Wide k = std::max<Wide>(least, 0); k <= most; k += found ? period : 1) {
      if (++visits > kMaxVisits) return true;
      const Wide rest = target - k * t.step;
      found = found || rest % divisor[i + 1] == 0;
      if (found && solve(i + 1, rest)) return true;
    }
    return false;
  }
};

// The lowest address, and the terms that reach every byte from there.
char* add_terms(Search& s, const Array& a) {
  char* low = a.data;
  for (int d = 0; d < a.layout.ndim(); ++d) {
    const int64_t last = a.layout.shape()[d] - 1;
    const int64_t step = a.layout.strides()[d] * a.itemsize();
    if (step < 0) low += last * step;
    s.add(std::abs(step), last);
  }
  s.add(1, a.itemsize() - 1);
  return low;
}

}  // namespace

bool may_overlap(const Array& a, const Array& b, const char* where) {
  if (a.layout.size() == 0 || b.layout.size() == 0 || a.device != b.device) return false;
  const Buffer *p = a.buffer.get(), *q = b.buffer.get();
  if (p != q && p && q && p->owned && q->owned) return false;  // two allocations
  const auto [a0, a1] = a.bytes(where);
  const auto [b0, b1] = b.bytes(where);
  if (a0 >= b1 || b0 >= a1) return false;
  // low_a + x = low_b + y for a byte offset x of a and y of b. Counting y down from b's end makes all steps
  // positive: x + (end - y) = low_b + end - low_a.
  Search s;
  const char* low_a = add_terms(s, a);
  const char* low_b = add_terms(s, b);
  s.prepare();
  return s.solve(0, (low_b - low_a) + (b1 - 1 - b0));
}

bool overlaps_itself(const Array& a) noexcept {
  const Layout& l = a.layout;
  if (l.is_c_contiguous() || l.is_f_contiguous()) return false;
  Term dims[kMaxDims];
  int n = 0;
  for (int d = 0; d < l.ndim(); ++d) {
    if (l.shape()[d] == 1) continue;
    if (l.strides()[d] == 0) return true;
    dims[n++] = {std::abs(l.strides()[d]), l.shape()[d] - 1};
  }
  std::sort(dims, dims + n, [](const Term& x, const Term& y) { return x.step < y.step; });
  // Every step exceeds the reach of all smaller ones, as in slices and transposes.
  int64_t reach = 0;
  bool nested = true;
  for (int i = 0; i < n && nested; ++i) {
    nested = dims[i].step > reach;
    reach += dims[i].step * dims[i].limit;
  }
  if (nested) return false;
  // Two indices of the same element differ by d, with sum(step * d) = 0. Let k be the first dimension with
  // d != 0, and d[k] = 1 + u positive, at most `limit`; the other d lie between -limit and limit. Counting u
  // down from its end, and the other d up from -limit, gives one sum of positive steps.
  for (int k = 0; k < n; ++k) {
    Search s;
    int64_t target = dims[k].step * dims[k].limit;
    s.add(dims[k].step, dims[k].limit - 1);
    for (int i = k + 1; i < n; ++i) {
      target += dims[i].step * dims[i].limit;
      s.add(dims[i].step, 2 * dims[i].limit);
    }
    s.prepare();
    if (s.solve(0, target)) return true;
  }
  return false;
}

bool is_same_place(const Array& a, const Array& b) noexcept {
  if (a.data != b.data || a.itemsize() != b.itemsize() || a.layout.ndim() != b.layout.ndim())
    return false;
  for (int d = 0; d < a.layout.ndim(); ++d) {
    if (a.layout.shape()[d] != b.layout.shape()[d]) return false;
    if (a.layout.strides()[d] != b.layout.strides()[d]) return false;
  }
  return true;
}

}  // namespace gpuinterop::ops
