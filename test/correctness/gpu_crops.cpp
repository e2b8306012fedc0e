// A crop or a slice of a device buffer may begin at any element, and kernels and copies see exactly it.
//
// A descriptor's offset must be a multiple of the device's minStorageBufferOffsetAlignment (16 on lavapipe and NVIDIA,
// up to 256 by the specification), but a crop's is a multiple of an element only. Both directions are tried at every
// offset: a crop as output (only it may change in the base) and as input, for scalar and for vectorised kernels, whose
// arrays have a stride of a whole vector. Offsets of a crop of a crop add up.
//
// Stock: right on lavapipe for one crop, under validation VUID-VkWriteDescriptorSet-descriptorType-00328; wrong for a
// crop of a crop (it drops the first offset). The CTest entry gpu_crops.align256 repeats this with a device that asks
// for 256.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

template<typename T>
T base_value(int i) {
    return (T)(i * 3 + 1);
}

// out(x) = in(x) + 1, scalar or vectorised.
template<typename T>
Callable compile_increment(int lanes) {
    Var x("x"), xo("xo"), xi("xi");
    ImageParam input(type_of<T>(), 1, "input");
    Func f("increment");
    f(x) = input(x) + cast<T>(1);
    if (lanes == 1) {
        f.gpu_tile(x, xi, 16, TailStrategy::GuardWithIf);
    } else {
        // Extents that are a multiple of the vector; loads and stores are then dense and as wide as the vector.
        f.output_buffer().dim(0).set_extent((f.output_buffer().dim(0).extent() / (lanes * 4)) * (lanes * 4));
        input.dim(0).set_min(f.output_buffer().dim(0).min());
        f.vectorize(x, lanes, TailStrategy::RoundUp).gpu_tile(x, xi, 4, TailStrategy::RoundUp);
    }
    return f.compile_to_callable({input}, gpu_target());
}

template<typename T>
class GpuCrops : public ::testing::Test {
protected:
    using Line = Runtime::Buffer<T, 1>;
    static constexpr int kBase = 256;
    static constexpr int kExtent = 64;

    static Line on_device(int n = kBase) {
        Line base(n);
        fill(base, [](const int *p) { return base_value<T>(p[0]); });
        EXPECT_EQ(base.copy_to_device(vulkan_interface()), 0);
        return base;
    }
    // The kernels name equal coordinates in and out, so both crops are made to begin at 0. (Buffer::translate would
    // drop the device allocation.)
    static void move_to_zero(Line &crop) { crop.raw_buffer()->dim[0].min = 0; }

    // What the base holds afterwards: [begin, begin + kExtent) is source + 1, the rest is untouched.
    static ::testing::AssertionResult only_changed(Line &base, int begin, int from) {
        base.set_device_dirty();
        base.copy_to_host();
        return matches(base, [&](const int *p) {
            const int i = p[0] - begin;
            return i < 0 || i >= kExtent ? base_value<T>(p[0]) : (T)(base_value<T>(from + i) + 1);
        });
    }
};

using Types = ::testing::Types<uint8_t, uint16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(GpuCrops, Types);

TYPED_TEST(GpuCrops, InputAndOutputAtEveryOffset) {
    using T = TypeParam;
    using Line = Runtime::Buffer<T, 1>;
    for (int lanes : {1, 4}) {
        Callable kernel = compile_increment<T>(lanes);
        for (int out_at = 0; out_at <= 17; out_at++) {
            for (int in_at : {0, 1, 2, 3, 5, 16, 17}) {
                Line in = this->on_device(), out = this->on_device();
                {
                    Line from = in.cropped(0, in_at, this->kExtent), to = out.cropped(0, out_at, this->kExtent);
                    this->move_to_zero(from);
                    this->move_to_zero(to);
                    ASSERT_OK(kernel(from, to));
                }
                ASSERT_TRUE(this->only_changed(out, out_at, in_at))
                    << "out at " << out_at << ", in at " << in_at << ", lanes " << lanes;
                in.set_device_dirty();
                in.copy_to_host();
                ASSERT_TRUE(matches(in, [](const int *p) { return base_value<T>(p[0]); })) << "the input was written";
            }
        }
    }
}

// One base is read and written by one launch, through two crops that do not overlap, and through one crop in place. The
// last, where a descriptor cannot reach the crop and the array's stride does not divide its offset either, may be
// refused by name (the bytes would have to be in two places at once), but never be wrong.
TYPED_TEST(GpuCrops, TwoCropsOfOneBase) {
    using T = TypeParam;
    using Line = Runtime::Buffer<T, 1>;
    for (int lanes : {1, 4}) {
        Callable kernel = compile_increment<T>(lanes);
        for (int out_at : {128, 129, 130, 131, 133, 144, 145}) {
            for (int in_at : {0, 1, 3, 7}) {
                Line base = this->on_device();
                {
                    Line from = base.cropped(0, in_at, this->kExtent), to = base.cropped(0, out_at, this->kExtent);
                    this->move_to_zero(from);
                    this->move_to_zero(to);
                    ASSERT_OK(kernel(from, to));
                }
                ASSERT_TRUE(this->only_changed(base, out_at, in_at)) << "out at " << out_at << ", in at " << in_at;
            }
        }
        for (int at : {0, 1, 2, 3, 4, 5, 15, 16, 17}) {
            Line base = this->on_device();
            Context context;
            {
                Line crop = base.cropped(0, at, this->kExtent);
                if (lanes == 4 && at % lanes != 0) {
                    // A pipeline without checks goes on after a refusal, and returns 0.
                    if (kernel(context.jit(), crop, crop) != 0 || !context.errors.empty()) {
                        ASSERT_TRUE(one_message(context, {"overlaps"}));
                        continue;
                    }
                } else {
                    ASSERT_OK(kernel(crop, crop));
                }
            }
            ASSERT_TRUE(this->only_changed(base, at, at)) << "in place at " << at << ", lanes " << lanes;
        }
    }
}

// Neighbours written by launches with no sync between: crops [k, k+1) in an order that jumps about.
TYPED_TEST(GpuCrops, ManyCropsNoSync) {
    using T = TypeParam;
    using Line = Runtime::Buffer<T, 1>;
    Var x("x"), xi("xi");
    Param<int> salt("salt");
    Func f("f");
    f(x) = cast<T>(x * 5 + salt);
    f.gpu_tile(x, xi, 8, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({salt}, gpu_target());
    Line base = this->on_device();
    std::vector<T> expected(this->kBase);
    for (int i = 0; i < this->kBase; i++) expected[i] = base_value<T>(i);
    std::mt19937 random(5);
    for (int launch = 0; launch < 200; launch++) {
        const int begin = random() % (this->kBase - 1), extent = 1 + random() % std::min(40, this->kBase - begin);
        Line crop = base.cropped(0, begin, extent);
        ASSERT_OK(kernel(launch, crop));
        for (int i = begin; i < begin + extent; i++) expected[i] = (T)(i * 5 + launch);
    }
    base.set_device_dirty();
    base.copy_to_host();
    EXPECT_TRUE(matches(base, [&](const int *p) { return expected[p[0]]; }));
}

TYPED_TEST(GpuCrops, OffsetsOfCropsOfCropsAddUp) {
    using T = TypeParam;
    using Line = Runtime::Buffer<T, 1>;
    Callable kernel = compile_increment<T>(1);
    for (int first : {0, 1, 33, 64}) {
        for (int second : {0, 1, 31, 32}) {
            for (int third : {0, 5}) {
                Line base = this->on_device();
                const int at = first + second + third;
                {
                    Line outer = base.cropped(0, first, this->kBase - first);
                    Line middle = outer.cropped(0, first + second, this->kBase - first - second);
                    Line inner = middle.cropped(0, at, this->kExtent);
                    ASSERT_OK(kernel(inner, inner));
                    // A copy of the crop itself must know its place as well.
                    inner.copy_to_host();
                    ASSERT_TRUE(matches(inner, [&](const int *p) { return (T)(base_value<T>(p[0]) + 1); }));
                }
                ASSERT_TRUE(this->only_changed(base, at, at)) << first << " + " << second << " + " << third;
            }
        }
    }
}

TYPED_TEST(GpuCrops, CopiesOfACrop) {
    using T = TypeParam;
    using Line = Runtime::Buffer<T, 1>;
    for (int at : {0, 1, 2, 3, 5, 17}) {
        Line base = this->on_device();
        {
            Line crop = base.cropped(0, at, 21);
            fill(crop, [](const int *p) { return p[0] * 7; });
            ASSERT_OK(crop.copy_to_device(vulkan_interface()));
            for (int i = 0; i < 21; i++) crop.data()[i] = 0;
            crop.set_device_dirty();
            ASSERT_OK(crop.copy_to_host());
            ASSERT_TRUE(matches(crop, [](const int *p) { return (T)(p[0] * 7); }));
        }
        std::fill(base.data(), base.data() + this->kBase, (T)0);
        base.set_device_dirty();
        ASSERT_OK(base.copy_to_host());
        ASSERT_TRUE(matches(
            base, [&](const int *p) { return p[0] >= at && p[0] < at + 21 ? (T)(p[0] * 7) : base_value<T>(p[0]); }));
    }
}

using Image = Runtime::Buffer<int32_t, 2>;
using Volume = Runtime::Buffer<int32_t, 3>;

int volume_value(const int *p) { return p[0] + p[1] * 100 + p[2] * 10000; }

Callable compile_negate_2d() {
    Var x("x"), y("y"), xi("xi"), yi("yi");
    ImageParam input(Int(32), 2, "input");
    Func f("negate");
    f(x, y) = -input(x, y);
    f.gpu_tile(x, y, xi, yi, 4, 4, TailStrategy::GuardWithIf);
    return f.compile_to_callable({input}, gpu_target());
}

TEST(GpuCropsOfImages, RectanglesAnywhere) {
    Callable kernel = compile_negate_2d();
    for (int left : {0, 1, 2, 3, 5}) {
        for (int top : {0, 1, 3}) {
            Image base(64, 64);
            fill(base, [](const int *p) { return p[0] + p[1] * 100; });
            ASSERT_OK(base.copy_to_device(vulkan_interface()));
            {
                Image crop = base.cropped({{left, 19}, {top, 11}});
                ASSERT_OK(kernel(crop, crop));
            }
            base.set_device_dirty();
            base.copy_to_host();
            ASSERT_TRUE(matches(base,
                                [&](const int *p) {
                                    const bool inside =
                                        p[0] >= left && p[0] < left + 19 && p[1] >= top && p[1] < top + 11;
                                    return (inside ? -1 : 1) * (p[0] + p[1] * 100);
                                }))
                << "at " << left << ", " << top;
        }
    }
}

// Two pipelines write crops of one base that overlap, with no sync between: what was launched last stays.
TEST(GpuCropsOfImages, TwoPipelinesNoSync) {
    Callable negate = compile_negate_2d();
    Var x("x"), y("y"), xi("xi"), yi("yi");
    Param<int> salt("salt");
    Func f("paint");
    f(x, y) = x * 3 + y * 5 + salt;
    f.gpu_tile(x, y, xi, yi, 8, 2, TailStrategy::GuardWithIf);
    Callable paint = f.compile_to_callable({salt}, gpu_target());
    for (int left : {1, 2, 3, 5}) {
        Image base(64, 64);
        std::vector<int> expected(64 * 64);
        fill(base, [&](const int *p) { return expected[p[0] + p[1] * 64] = p[0] + p[1] * 100; });
        ASSERT_OK(base.copy_to_device(vulkan_interface()));
        for (int round = 0; round < 20; round++) {
            const int top = round % 7, right = left + 10 + round % 3;
            {
                Image one = base.cropped({{left, 20}, {top, 30}}), two = base.cropped({{right, 20}, {top + 3, 30}});
                ASSERT_OK(paint(round, one));
                ASSERT_OK(negate(two, two));
            }
            for (int v = top; v < top + 30; v++) {
                for (int u = left; u < left + 20; u++) expected[u + v * 64] = u * 3 + v * 5 + round;
            }
            for (int v = top + 3; v < top + 33; v++) {
                for (int u = right; u < right + 20; u++) expected[u + v * 64] = -expected[u + v * 64];
            }
        }
        base.set_device_dirty();
        ASSERT_OK(base.copy_to_host());
        ASSERT_TRUE(matches(base, [&](const int *p) { return expected[p[0] + p[1] * 64]; })) << "at " << left;
    }
}

TEST(GpuCropsOfImages, SlicesOfEveryDimension) {
    Callable kernel = compile_negate_2d();
    for (int dim = 0; dim < 3; dim++) {
        for (int position : {0, 1, 4}) {
            Volume base(5, 7, 6);
            fill(base, volume_value);
            ASSERT_OK(base.copy_to_device(vulkan_interface()));
            {
                // The kernel wants a stride of 1 in x, so a slice of x is compiled for as a strided one.
                Image slice = base.sliced(dim, position);
                if (dim == 0) {
                    Image rows(7, 6);
                    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, slice.raw_buffer(), vulkan_interface(),
                                                              rows.raw_buffer()));
                    ASSERT_OK(kernel(rows, rows));
                    rows.copy_to_host();
                    ASSERT_TRUE(matches(rows, [&](const int *p) { return -(position + p[0] * 100 + p[1] * 10000); }));
                    continue;
                }
                ASSERT_OK(kernel(slice, slice));
            }
            base.set_device_dirty();
            base.copy_to_host();
            ASSERT_TRUE(matches(base, [&](const int *p) { return (p[dim] == position ? -1 : 1) * volume_value(p); }))
                << "dimension " << dim << ", position " << position;
        }
    }
}

TEST(GpuCropsOfImages, SliceOfACropOfASlice) {
    Callable kernel = compile_negate_2d();
    Runtime::Buffer<int32_t, 4> base(6, 5, 4, 3);
    const auto value = [](const int *p) { return p[0] + p[1] * 10 + p[2] * 100 + p[3] * 1000; };
    fill(base, value);
    ASSERT_OK(base.copy_to_device(vulkan_interface()));
    {
        Volume slice = base.sliced(3, 2);
        Volume crop = slice.cropped(0, 1, 3).cropped(1, 2, 3);
        Image last = crop.sliced(2, 3);
        ASSERT_OK(kernel(last, last));
    }
    base.set_device_dirty();
    base.copy_to_host();
    EXPECT_TRUE(matches(base, [&](const int *p) {
        const bool inside = p[3] == 2 && p[2] == 3 && p[0] >= 1 && p[0] < 4 && p[1] >= 2 && p[1] < 5;
        return (inside ? -1 : 1) * value(p);
    }));
}

// A crop made by hand, as clients without Runtime::Buffer's reference counts make it.
struct HandMadeCrop {
    Image view;
    HandMadeCrop(Image &base, int left, int top, int width, int height) {
        halide_dimension_t shape[2] = {{left, width, base.dim(0).stride(), 0}, {top, height, base.dim(1).stride(), 0}};
        view = Image(base.data() + (left - base.dim(0).min()) + (top - base.dim(1).min()) * base.dim(1).stride(), 2,
                     shape);
        EXPECT_EQ(vulkan_interface()->device_crop(nullptr, base.raw_buffer(), view.raw_buffer()), 0);
    }
    void release() { EXPECT_EQ(vulkan_interface()->device_release_crop(nullptr, view.raw_buffer()), 0); }
};

// The base is freed first; the crop keeps the memory alive, and new allocations must not get it.
TEST(GpuCropsOfImages, BaseFreedBeforeItsCrop) {
    Callable kernel = compile_negate_2d();
    for (int round = 0; round < 20; round++) {
        Image base(64, 64);
        fill(base, [&](const int *p) { return p[0] + p[1] * 100 + round; });
        ASSERT_OK(base.copy_to_device(vulkan_interface()));
        HandMadeCrop crop(base, 3, 5, 40, 30);
        HandMadeCrop inner(crop.view, 10, 9, 20, 20);
        ASSERT_OK(base.device_free());
        // Of the same size, and written at once.
        Image other(64, 64);
        other.fill(1);
        other.set_host_dirty();
        ASSERT_OK(other.copy_to_device(vulkan_interface()));
        if (round % 2) crop.release();
        ASSERT_OK(kernel(inner.view, inner.view));
        ASSERT_OK(inner.view.copy_to_host());
        ASSERT_TRUE(matches(inner.view, [&](const int *p) { return -(p[0] + p[1] * 100 + round); }));
        inner.release();
        if (round % 2 == 0) crop.release();
    }
}

TEST(GpuCropsOfImages, CropFreedBeforeItsBase) {
    Callable kernel = compile_negate_2d();
    Image base(64, 64);
    fill(base, [](const int *p) { return p[0] + p[1] * 100; });
    ASSERT_OK(base.copy_to_device(vulkan_interface()));
    for (int round = 0; round < 20; round++) {
        HandMadeCrop crop(base, round, 5, 10, 10);
        ASSERT_OK(kernel(crop.view, crop.view));
        crop.view.set_device_dirty(false);
        crop.release();
    }
    base.set_device_dirty();
    base.copy_to_host();
    EXPECT_TRUE(matches(base, [](const int *p) {
        int flips = 0;
        for (int round = 0; round < 20; round++) {
            flips += p[0] >= round && p[0] < round + 10 && p[1] >= 5 && p[1] < 15;
        }
        return (flips % 2 ? -1 : 1) * (p[0] + p[1] * 100);
    }));
}

}  // namespace
