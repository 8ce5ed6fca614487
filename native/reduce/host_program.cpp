#include "reduce/host_program.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "reduce/reduced_dimensions.hpp"

namespace gpuinterop::ops {

namespace {

constexpr int64_t kAccumulators = 4096;  // that are joined at a time
constexpr int64_t kStridedTile = 2048;   // elements of a strided line at a time
// Shorter lines cost more in calls than longer strided ones.
constexpr int64_t kShortReduction = 16;
constexpr int kMostPointers = kMaxPlanned + 1;

// By the sum of the inputs' strides; the first input is read forwards.
struct ByInputs {
  int inputs;
  int64_t direction(const int64_t* stride) const { return stride[0]; }
  int64_t pace(const int64_t* stride) const {
    int64_t sum = 0;
    for (int i = 0; i < inputs; ++i) sum += std::abs(stride[i]);
    return sum;
  }
};

// The operands are the inputs, then `out`; strides in bytes.
struct Geometry : ReducedDimensions<kMostPointers> {
  char* at[kMostPointers];
  bool by_lines;  // lines of reduced elements, one for each accumulator; else lines of accumulators
  int64_t tile;   // elements of a line of reduced elements at a time

  Geometry(const HostReduction& s, const Array* const* ins, const Array& out, const char* where) {
    const int ndim = static_cast<int>(s.shape.size()), n = s.inputs;
    for (int i = 0; i < n; ++i) at[i] = ins[i]->data;
    at[n] = out.data;
    int next = 0;  // axis of `out`
    for (int d = 0; d < ndim; ++d) {
      const int64_t extent = s.shape[static_cast<size_t>(d)];
      const bool is_reduced = s.axes >> d & 1;
      const int own = is_reduced ? -1 : out.layout.ndim() == ndim ? d : next++;
      if (extent != 1 && !is_reduced &&
          (own >= out.layout.ndim() || out.layout.shape()[own] != extent))
        fail_changed(where);
      (is_reduced ? reduced : kept).add(extent, n + !is_reduced, [&](int i) -> int64_t {
        if (i == n) return out.layout.strides()[own] * out.itemsize();
        const Layout& l = ins[i]->layout;
        const int axis = d - (ndim - l.ndim());
        if (axis >= 0 && l.shape()[axis] != 1 && l.shape()[axis] != extent) fail_changed(where);
        return l.stride_along(d, ndim) * ins[i]->itemsize();
      });
    }
    arrange(n, n + 1, ByInputs{n}, s.find != nullptr,
            [&](int i, int64_t bytes) { at[i] += bytes; });
    const int64_t k = kept.line(), r = reduced.line();
    by_lines = lines_are_closer ? r >= kShortReduction || k <= r : k < kShortReduction && r > k;
    tile = lines_are_closer ? r : kStridedTile;
  }
};

// The programs of one stage, while they run.
struct StageRun {
  const HostStage& stage;
  ProgramRun join, finish;

  StageRun(const HostStage& stage, int64_t longest, int64_t count, const char* where)
      : stage(stage), join(*stage.join, longest, where), finish(*stage.finish, count, where) {}
};

class Reducer {
 public:
  // `start`: the first value of the accumulators, or null.
  Reducer(const HostReduction& s, Geometry& g, const char* start, const char* where)
      : s_(s),
        g_(g),
        start_(start),
        where_(where),
        count_(std::min(g.kept.line(), kAccumulators)),
        longest_(g.by_lines ? std::min(g.tile, g.reduced.line()) : count_),
        last_(static_cast<int>(s.stages.size()) - 1) {
    // The accumulators, then the values of the stage before.
    int64_t item = 0;
    for (const HostStage& stage : s.stages) item = std::max(item, itemsize_of(stage.accumulator));
    const int64_t before = last_ ? count_ * itemsize_of(s.stages[0].value) : 0;
    const int64_t bytes = ((count_ * item + 15) & ~int64_t{15}) + before;
    if (bytes > int64_t{sizeof stack_}) heap_ = allocate({}, bytes, where);
    accumulators_ = heap_ ? heap_->ptr : stack_;
    values_ = accumulators_ + bytes - before;
  }

  void run() {
    const int64_t extent = g_.kept.line();
    g_.kept.lines(g_.at, s_.inputs + 1, [&](char** at) {
      char* start[kMostPointers];
      std::copy(at, at + s_.inputs + 1, start);
      for (int64_t done = 0; done < extent; done += count_) {
        block(start, std::min(count_, extent - done));
        for (int i = 0; i <= s_.inputs; ++i) start[i] += count_ * g_.kept.last(i);
      }
    });
  }

 private:
  // Computes `count` results along the fastest kept dimension.
  void block(char* const* start, int64_t count) {
    for (int i = 0; i <= last_; ++i) {
      StageRun run(s_.stages[static_cast<size_t>(i)], longest_, count_, where_);
      const int64_t item = itemsize_of(run.stage.accumulator);
      const void* const initial = start_ ? start_ : static_cast<const void*>(&run.stage.initial);
      char* filled[] = {static_cast<char*>(const_cast<void*>(initial)), accumulators_};
      const intptr_t fill[] = {0, item};
      cast_loop(run.stage.accumulator, run.stage.accumulator)(filled, count, fill);
      if (g_.by_lines)
        join_lines(run, i, start, count);
      else
        join_accumulators(run, i, start, count);
      char* const to = i == last_ ? start[s_.inputs] : values_;
      char* const at[] = {accumulators_, to};
      const int64_t steps[] = {item,
                               i == last_ ? g_.kept.last(s_.inputs) : itemsize_of(run.stage.value)};
      run.finish.line(at, steps, count);
    }
  }

  void join_lines(StageRun& run, int stage, char* const* start, int64_t count) {
    const int n = s_.inputs;
    const int64_t extent = g_.reduced.line();
    int64_t steps[kMostPointers + 1] = {};
    for (int i = 0; i < n; ++i) steps[i] = g_.reduced.last(i);
    g_.reduced.lines(start, n, [&](char** at) {
      for (int64_t done = 0; done < extent; done += g_.tile)
        for (int64_t k = 0; k < count; ++k) {
          char* line[kMostPointers + 1];
          for (int i = 0; i < n; ++i)
            line[i] = at[i] + done * g_.reduced.last(i) + k * g_.kept.last(i);
          place(run, stage, k, line);
          run.join.line(line, steps, std::min(g_.tile, extent - done));
        }
    });
  }

  void join_accumulators(StageRun& run, int stage, char* const* start, int64_t count) {
    const int n = s_.inputs;
    int64_t steps[kMostPointers + 1];
    for (int i = 0; i < n; ++i) steps[i] = g_.kept.last(i);
    if (stage) steps[n] = itemsize_of(before(stage).value);
    steps[n + (stage > 0)] = itemsize_of(run.stage.accumulator);
    const int64_t extent = g_.reduced.line();
    g_.reduced.lines(start, n, [&](char** at) {
      char* line[kMostPointers + 1];
      place(run, stage, 0, line);
      std::copy(at, at + n, line);
      for (int64_t r = 0; r < extent; ++r) {
        run.join.line(line, steps, count);
        for (int i = 0; i < n; ++i) line[i] += g_.reduced.last(i);
      }
    });
  }

  const HostStage& before(int stage) const { return s_.stages[static_cast<size_t>(stage - 1)]; }

  // The addresses of the value of the stage before and of the accumulator, for result k of the block.
  void place(StageRun& run, int stage, int64_t k, char** line) {
    int i = s_.inputs;
    if (stage) line[i++] = values_ + k * itemsize_of(before(stage).value);
    line[i] = accumulators_ + k * itemsize_of(run.stage.accumulator);
  }

  const HostReduction& s_;
  Geometry& g_;
  const char* start_;
  const char* where_;
  const int64_t count_;    // the most accumulators of a block
  const int64_t longest_;  // elements of a line
  const int last_;
  char* accumulators_;
  char* values_;  // of the stage before
  BufferRef heap_;
  alignas(64) char stack_[8192];  // enough for small calls
};

// Computes positions in C order by NumPy's argmin or argmax, which reads elements without gaps.
class PlaceFinder {
 public:
  PlaceFinder(FindBest find, const Array& x, const Geometry& g)
      : find_(find), copy_(cast_loop(x.dtype, x.dtype)), g_(g), itemsize_(x.itemsize()) {}

  void run() {
    const int64_t count = g_.kept.line(), x_step = g_.kept.last(0), out_step = g_.kept.last(1),
                  extent = g_.reduced.line();
    const bool is_one_line = g_.reduced.ndim <= 1 && g_.reduced.last(0) == itemsize_;
    g_.kept.lines(g_.at, 2, [&](char** at) {
      for (int64_t k = 0; k < count; ++k) {
        char* const x = at[0] + k * x_step;
        auto* const place = reinterpret_cast<intptr_t*>(at[1] + k * out_step);
        if (is_one_line)
          find_(x, extent, place, nullptr);
        else
          *place = place_in_lines(x);
      }
    });
  }

 private:
  int64_t place_in_lines(char* x) {
    const int64_t extent = g_.reduced.line();
    const intptr_t steps[] = {g_.reduced.last(0), itemsize_};
    int64_t place = 0, count = 0;  // of the elements so far
    int64_t held = 0;              // in the buffer: the best element, then those after it
    auto find = [&] {
      intptr_t at = 0;
      find_(buffer_, held, &at, nullptr);
      if (at) {
        place = count - held + at;
        std::memcpy(buffer_, buffer_ + at * itemsize_, static_cast<size_t>(itemsize_));
      }
      held = 1;
    };
    g_.reduced.lines(&x, 1, [&](char** line) {
      for (int64_t done = 0; done < extent;) {
        const int64_t n = std::min(extent - done, kHeld - held);
        char* args[] = {line[0] + done * steps[0], buffer_ + held * itemsize_};
        copy_(args, n, steps);
        done += n;
        held += n;
        count += n;
        if (held == kHeld) find();
      }
    });
    find();
    return place;
  }

  static constexpr int64_t kHeld = 512;
  const FindBest find_;
  const HostLoop copy_;
  const Geometry& g_;
  const int64_t itemsize_;
  alignas(16) char buffer_[kHeld * 16];
};

constexpr int64_t kBlockOfRows = 16 << 10;  // bytes, which stay in the first-level cache
constexpr int64_t kMostRows = 256;          // of a block

// Runs the steps over blocks of rows.
class RowRun {
 public:
  RowRun(const HostRows& s, DTypeId dtype, const char* where)
      : s_(s),
        item_(itemsize_of(dtype)),
        count_(std::min(s.rows,
                        std::clamp<int64_t>(kBlockOfRows / (s.length * item_), 1, kMostRows))) {
    for (size_t i = 0; i < s.steps.size(); ++i) {
      const HostStage& stage = s.steps[i].stage;
      join_[i].emplace(*stage.join, count_ * s.length, where);
      if (stage.finish) finish_[i].emplace(*stage.finish, count_, where);
    }
  }

  void run(char* x, char* out) {
    for (int64_t done = 0; done < s_.rows; done += count_) {
      const int64_t offset = done * s_.length * item_;
      char* const at[kMostRowValues] = {x + offset, out + offset, numbers_[0], numbers_[1]};
      for (size_t i = 0; i < s_.steps.size(); ++i) step(i, at, std::min(count_, s_.rows - done));
    }
  }

 private:
  static bool is_row(size_t value) { return value <= kResultRow; }

  void step(size_t i, char* const* at, int64_t count) {
    const RowStep& step = s_.steps[i];
    const size_t n = step.reads.size();
    char* start[kMostRowValues] = {};
    int64_t along[kMostRowValues] = {}, next[kMostRowValues] = {};
    bool rows = false, numbers = step.joins;
    auto place = [&](size_t k, size_t value) {
      start[k] = at[value];
      along[k] = is_row(value) ? item_ : 0;
      next[k] = is_row(value) ? s_.length * item_ : item_;
      (is_row(value) ? rows : numbers) = true;
    };
    for (size_t k = 0; k < n; ++k) place(k, step.reads[k]);
    const int64_t wide = itemsize_of(step.stage.accumulator);
    if (step.joins) {
      char* filled[] = {reinterpret_cast<char*>(const_cast<Constant*>(&step.stage.initial)),
                        accumulators_};
      const intptr_t fill[] = {0, wide};
      cast_loop(step.stage.accumulator, step.stage.accumulator)(filled, count, fill);
      start[n] = accumulators_;
      next[n] = wide;
    } else {
      place(n, step.writes);
    }
    if (!(rows && numbers)) {  // without a boundary between rows
      std::fill_n(along, n + 1, item_);
      join_[i]->line(start, along, rows ? count * s_.length : count);
      return;
    }
    for (int64_t row = 0; row < count; ++row) {
      join_[i]->line(start, along, s_.length);
      for (size_t k = 0; k <= n; ++k) start[k] += next[k];
    }
    if (!step.joins) return;
    char* const ends[] = {accumulators_, at[step.writes]};
    const int64_t steps[] = {wide, item_};
    finish_[i]->line(ends, steps, count);
  }

  const HostRows& s_;
  const int64_t item_, count_;
  std::optional<ProgramRun> join_[kMostRowSteps], finish_[kMostRowSteps];
  alignas(16) char accumulators_[kMostRows * 8];
  alignas(16) char numbers_[kMostRowValues - 2][kMostRows * 8];
};

}  // namespace

void HostReduction::carry_out(const Array* const* ins, const Array& out, const char* where) const {
  if (out.layout.size() == 0) return;
  int64_t bytes = 0;
  bool calls_python = false;
  for (int i = 0; i < inputs; ++i) bytes += ins[i]->nbytes();
  for (const HostStage& stage : stages)
    calls_python = calls_python || stage.join->calls_python || stage.finish->calls_python;
  Geometry geometry(*this, ins, out, where);
  GilRelease released(!calls_python && bytes >= kGilBytes);
  if (find) return PlaceFinder(*find, *ins[0], geometry).run();
  Reducer(*this, geometry, starts ? ins[inputs]->data : nullptr, where).run();
}

bool HostReduction::fits(const Array* const* ins, int n_ins) const {
  return n_ins == inputs + starts && (!starts || (ins[inputs]->dtype == stages[0].accumulator &&
                                                  ins[inputs]->layout.size() == 1));
}

void HostRows::carry_out(const Array* const* ins, const Array& out, const char* where) const {
  GilRelease released(out.nbytes() >= kGilBytes);
  RowRun(*this, out.dtype, where).run(ins[0]->data, out.data);
}

bool HostRows::fits(const Array* const* ins, int n_ins) const {
  return n_ins == 1 && ins[0]->dtype == outputs[0].dtype && ins[0]->layout.is_c_contiguous() &&
         ins[0]->layout.size() == rows * length;
}

void HostPlan::compute(const MaybeArray* ins, int n_ins, const MaybeArray* outs, const bool*,
                       const char* where) const {
  const Array* read[kMaxPlanned];
  for (int i = 0; i < n_ins; ++i) read[i] = &*ins[i];
  if (!fits(read, n_ins)) fail_changed(where);
  require_recorded({});
  if (recording_on_host()) {
    HostWork work;
    for (int i = 0; i < n_ins; ++i) work.inputs.push_back(*read[i]);
    work.outs.push_back(*outs[0]);
    work.where = where;
    work.compute = [plan = shared_from_this()](const HostWork& call) {
      const Array* arrays[kMaxPlanned];
      for (size_t i = 0; i < call.inputs.size(); ++i) arrays[i] = &call.inputs[i];
      plan->carry_out(arrays, call.outs[0], call.where.c_str());
    };
    recorder->add(std::move(work));
  } else {
    for (int i = 0; i < n_ins; ++i) require_set(where, *read[i]);
    note_write(*outs[0]);
    carry_out(read, *outs[0], where);
  }
}

}  // namespace gpuinterop::ops
