// The decomposition of strided copies beside a naive loop over every element: the right bytes arrive, nothing else is
// written, and no access leaves its memory. Directly, and through a dense stream that is cut in two.

#include "fuzz.h"

#include <string.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "vulkan_base.h"
#include "vulkan_strides.h"

using namespace halide_vulkan;

namespace {

constexpr int64_t kMostElements = 2000, kMostSpan = 1 << 16;

// Exactly as large as the view, so that the address sanitizer sees what lies outside.
class Memory {
public:
    explicit Memory(size_t size) : size(size), bytes(new uint8_t[size ? size : 1]) {}
    const size_t size;
    const std::unique_ptr<uint8_t[]> bytes;
};

void draw_view(Input &in, StridedView &v, const StridedView *like) {
    v.dims = like ? like->dims : (int)in.below(kMaxDimensions + 2);
    v.element_bytes = like && in.below(32) ? like->element_bytes : in.below(20);
    for (int i = 0; i < v.dims && i < kMaxDimensions; i++) {
        v.extent[i] = like && in.below(64) ? like->extent[i] : (int64_t)in.below(12);
        int64_t dense = (int64_t)v.element_bytes;
        if (i > 0 && __builtin_mul_overflow(v.stride[i - 1], v.extent[i - 1], &dense)) dense = 1;
        if (dense == INT64_MIN) dense = 1;
        switch (in.below(8)) {
        case 0: v.stride[i] = 0; break;
        case 1: v.stride[i] = (int64_t)in.below(4096); break;
        case 2: v.stride[i] = -(int64_t)in.below(4096); break;
        case 3: v.stride[i] = (int64_t)((uint64_t)in.word() << 32 | in.word()); break;
        case 4: v.stride[i] = -dense; break;
        case 5: v.stride[i] = (int64_t)((uint64_t)dense + v.element_bytes * in.below(4)); break;
        default: v.stride[i] = dense;
        }
        if (v.stride[i] > ((int64_t)1 << 40) || v.stride[i] < -((int64_t)1 << 40)) {
            if (i % 2) v.stride[i] >>= 24;  // so that products come near the limits, and over them
        }
    }
    v.offset = 0;
}

// False where a view is not for real memory here; it has been measured then, which is a test as well.
bool place(StridedView &v, size_t *bytes) {
    int64_t low, high;
    if (!span(v, &low, &high)) return false;
    FUZZ_CHECK(low <= 0 && high >= 0 && high - low <= kMostBytes);
    int64_t elements = 1;
    for (int i = 0; i < v.dims; i++) {
        if (v.extent[i] <= 0) elements = 0;
        if (elements > kMostElements) return false;
        elements *= v.extent[i];
    }
    if (high - low > kMostSpan || elements > kMostElements) return false;
    v.offset = -low;
    *bytes = (size_t)(high - low);
    return true;
}

// Calls what(source byte, destination byte) for each byte, as nested loops do.
template<typename What>
void naive(const StridedView &src, const StridedView &dst, What what) {
    if (is_empty(src)) return;
    int64_t at[kMaxDimensions] = {};
    for (;;) {
        int64_t s = src.offset, d = dst.offset;
        for (int i = 0; i < src.dims; i++) s += at[i] * src.stride[i], d += at[i] * dst.stride[i];
        for (uint64_t b = 0; b < src.element_bytes; b++) what((size_t)s + b, (size_t)d + b);
        int i = 0;
        while (i < src.dims && ++at[i] == src.extent[i]) at[i++] = 0;
        if (i == src.dims) return;
    }
}

class Copy {
public:
    Copy(const StridedView &src, const StridedView &dst, size_t from_bytes, size_t to_bytes)
        : from(from_bytes), to(to_bytes) {
        for (size_t i = 0; i < from.size; i++) from.bytes[i] = (uint8_t)(i * 7 + i / 251);
        naive(src, dst, [&](size_t s, size_t d) { may_be[d].insert(from.bytes[s]); });
        clear();
    }
    void clear() { memset(to.bytes.get(), kUntouched, to.size); }
    // Where the destination overlaps itself, any of the values may stand.
    void check() const {
        for (size_t i = 0; i < to.size; i++) {
            const auto known = may_be.find(i);
            if (known == may_be.end()) {
                FUZZ_CHECK(to.bytes[i] == kUntouched);
            } else {
                FUZZ_CHECK(known->second.count(to.bytes[i]) == 1);
            }
        }
    }

    Memory from, to;

private:
    static constexpr uint8_t kUntouched = 0xa5;
    std::map<size_t, std::set<uint8_t>> may_be;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    StridedView src, dst;
    draw_view(in, src, nullptr);
    draw_view(in, dst, &src);
    const Side order = in.below(2) ? Side::source : Side::destination;
    CopyPlan plan;
    Failure failure;
    const bool planned = plan_copy(src, dst, order, plan, failure);
    FUZZ_CHECK(planned == !failure.failed());
    if (src.dims > kMaxDimensions) FUZZ_CHECK(!planned);
    if (src.dims > kMaxDimensions || !planned) return 0;
    FUZZ_CHECK(plan.direct.dims <= src.dims);
    size_t from_bytes, to_bytes;
    if (!place(src, &from_bytes) || !place(dst, &to_bytes)) return 0;
    FUZZ_CHECK(plan_copy(src, dst, order, plan, failure));  // now with offsets

    Copy copy(src, dst, from_bytes, to_bytes);
    copy_on_cpu(plan.direct, 0, plan.bytes(), copy.from.bytes.get(), copy.to.bytes.get());
    copy.check();

    // Through the stream, in two pieces, each of which is a memory of its own.
    copy.clear();
    const Runs pack = source_to_dense(plan), unpack = dense_to_destination(plan);
    FUZZ_CHECK(pack.bytes == plan.bytes() && unpack.bytes == plan.bytes());
    const size_t cut = (size_t)in.below(plan.bytes() + 1);
    for (int half = 0; half < 2; half++) {
        const size_t begin = half ? cut : 0, bytes = half ? plan.bytes() - cut : cut;
        const Memory stream(bytes);
        copy_on_cpu(pack, begin, bytes, copy.from.bytes.get(), stream.bytes.get());
        copy_on_cpu(unpack, begin, bytes, stream.bytes.get(), copy.to.bytes.get());
    }
    copy.check();
    return 0;
}
