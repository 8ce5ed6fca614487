#include "ops/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace gpuinterop::ops {

namespace {

struct Term {
  int64_t step;   // bytes, positive
  int64_t limit;  // the index runs from 0 to limit
};

constexpr int kMaxTerms = 2 * kMaxDims + 2;
constexpr int kMaxVisits = 2000;

// Is sum(step * index) == target for some indices? Terms come with falling steps; `reach` and
// `divisor` hold, from each term on, the largest sum and the common divisor of the steps.
struct Search {
  Term terms[kMaxTerms];
  int64_t reach[kMaxTerms + 1], divisor[kMaxTerms + 1];
  int count = 0;
  int visits = 0;

  void add(int64_t step, int64_t limit) {
    if (step == 0 || limit == 0) return;
    for (int i = 0; i < count; ++i)
      if (terms[i].step == step) {
        terms[i].limit += limit;
        return;
      }
    terms[count++] = {step, limit};
  }
  void prepare() {
    std::sort(terms, terms + count, [](const Term& a, const Term& b) { return a.step > b.step; });
    reach[count] = 0;
    divisor[count] = 0;
    for (int i = count - 1; i >= 0; --i) {
      reach[i] = reach[i + 1] + terms[i].step * terms[i].limit;
      divisor[i] = std::gcd(terms[i].step, divisor[i + 1]);
    }
  }
  bool solve(int i, int64_t target) {
    if (target < 0 || target > reach[i]) return false;
    if (target == 0) return true;
    if (i == count || target % divisor[i] != 0) return false;
    if (++visits > kMaxVisits) return true;
    const Term& t = terms[i];
    const int64_t most = std::min(t.limit, target / t.step);
    for (int64_t k = most; k >= 0 && target - k * t.step <= reach[i + 1]; --k)
      if (solve(i + 1, target - k * t.step)) return true;
    return false;
  }
};

// Lowest address, and the terms that reach every byte from there.
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
  const auto [alo, ahi] = a.layout.span(where);
  const auto [blo, bhi] = b.layout.span(where);
  const char *a0 = a.data + alo * a.itemsize(), *a1 = a.data + (ahi + 1) * a.itemsize();
  const char *b0 = b.data + blo * b.itemsize(), *b1 = b.data + (bhi + 1) * b.itemsize();
  if (a0 >= b1 || b0 >= a1) return false;
  // low_a + x = low_b + y for a byte offset x of a and y of b. With y counted down from b's end both
  // sides become one sum of positive steps: x + (end - y) = low_b + end - low_a.
  Search s;
  const char* low_a = add_terms(s, a);
  const char* low_b = add_terms(s, b);
  s.prepare();
  return s.solve(0, (low_b - low_a) + (b1 - 1 - b0));
}

bool overlaps_itself(const Array& a) noexcept {
  const Layout& l = a.layout;
  if (l.size() <= 1 || l.is_c_contiguous() || l.is_f_contiguous()) return false;
  Term dims[kMaxDims];
  int n = 0;
  for (int d = 0; d < l.ndim(); ++d) {
    if (l.shape()[d] == 1) continue;
    if (l.strides()[d] == 0) return true;
    dims[n++] = {std::abs(l.strides()[d]), l.shape()[d] - 1};
  }
  std::sort(dims, dims + n, [](const Term& x, const Term& y) { return x.step < y.step; });
  // Every step goes beyond all that the smaller ones reach: so it is for slices and transposes.
  int64_t reach = 0;
  bool nested = true;
  for (int i = 0; i < n && nested; ++i) {
    nested = dims[i].step > reach;
    reach += dims[i].step * dims[i].limit;
  }
  if (nested) return false;
  // Two indices with one place differ by d, sum(step * d) = 0. Let k be the first dimension with d != 0,
  // taken positive: 1 + u of at most `limit`; the others lie between -limit and limit. Counting u down
  // from its end and the others up from theirs makes it one sum of positive steps.
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
    if (a.layout.shape()[d] > 1 && a.layout.strides()[d] != b.layout.strides()[d]) return false;
  }
  return true;
}

}  // namespace gpuinterop::ops
