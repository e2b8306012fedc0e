// Copies move exactly the elements that the shapes name, in every direction, and write nothing else.
//
// Shapes may have up to 16 dimensions, padded, permuted or negative-free strides, different strides on both sides, and
// mins that differ; what is copied is the overlap of the coordinates. Bytes between the elements, on the host as on the
// device, belong to someone else. Two views of one device buffer may be copied onto one another.
//
// Stock on lavapipe: fails from the first size that is no multiple of 64 bytes; a partial overlap runs past the end.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

struct Dimension {
    int min, extent, stride;
};
using Shape = std::vector<Dimension>;

// A host array of T with a shape over it. The array is larger than the shape needs, so that stray writes show.
template<typename T>
struct View {
    std::vector<T> storage;
    Runtime::Buffer<T> buffer;
    T salt;

    View(const Shape &shape, T salt) : storage(size_of(shape) + 32), salt(salt) {
        for (size_t i = 0; i < storage.size(); i++) storage[i] = (T)(i * 7 + salt);
        std::vector<halide_dimension_t> dims;
        for (const Dimension &d : shape) dims.emplace_back(d.min, d.extent, d.stride);
        buffer = Runtime::Buffer<T>(storage.data() + 16, (int)dims.size(), dims.data());
    }
    static size_t size_of(const Shape &shape) {
        size_t last = 1;
        for (const Dimension &d : shape) last += (size_t)d.stride * (d.extent - 1);
        return last;
    }
    halide_buffer_t *raw() { return buffer.raw_buffer(); }
};

// Calls f(position) for each coordinate that both shapes have.
template<typename F>
void for_overlap(const Shape &a, const Shape &b, F &&f) {
    std::vector<int> low, high;
    for (size_t d = 0; d < a.size(); d++) {
        low.push_back(std::max(a[d].min, b[d].min));
        high.push_back(std::min(a[d].min + a[d].extent, b[d].min + b[d].extent));
        if (low[d] >= high[d]) return;
    }
    std::vector<int> position = low;
    while (true) {
        f(position);
        size_t d = 0;
        for (; d < position.size(); d++) {
            if (++position[d] < high[d]) break;
            position[d] = low[d];
        }
        if (d == position.size()) return;
    }
}

size_t index_of(const Shape &shape, const std::vector<int> &position) {
    size_t index = 16;
    for (size_t d = 0; d < shape.size(); d++) index += (size_t)shape[d].stride * (position[d] - shape[d].min);
    return index;
}

template<typename T>
::testing::AssertionResult same(const std::vector<T> &got, const std::vector<T> &want) {
    for (size_t i = 0; i < want.size(); i++) {
        if (got[i] != want[i]) {
            return ::testing::AssertionFailure()
                   << "word " << i << " of the array is " << +got[i] << " instead of " << +want[i];
        }
    }
    return ::testing::AssertionSuccess();
}

template<typename T>
void upload(View<T> &view) {
    view.buffer.set_host_dirty();
    ASSERT_OK(view.buffer.copy_to_device(vulkan_interface()));
}

// What dst's array holds after copying src's overlap into it.
template<typename T>
std::vector<T> expected_after(const View<T> &src, const Shape &from, const View<T> &dst, const Shape &to) {
    std::vector<T> want = dst.storage;
    for_overlap(from, to, [&](const std::vector<int> &position) {
        want[index_of(to, position)] = src.storage[index_of(from, position)];
    });
    return want;
}

template<typename T>
void device_to_host(const Shape &from, const Shape &to) {
    View<T> src(from, 1), dst(to, 100);
    const std::vector<T> want = expected_after(src, from, dst, to);
    upload(src);
    // The host copy of the source is no longer valid: the bytes must come from the device.
    std::fill(src.storage.begin(), src.storage.end(), (T)0);
    src.buffer.set_device_dirty();
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, src.raw(), nullptr, dst.raw()));
    ASSERT_TRUE(same(dst.storage, want)) << "device to host";
}

template<typename T>
void host_to_device(const Shape &from, const Shape &to) {
    View<T> src(from, 1), dst(to, 100);
    const std::vector<T> want = expected_after(src, from, dst, to);
    upload(dst);
    src.buffer.set_host_dirty();
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, src.raw(), vulkan_interface(), dst.raw()));
    std::fill(src.storage.begin(), src.storage.end(), (T)0);
    dst.buffer.set_host_dirty(false);
    dst.buffer.set_device_dirty();
    ASSERT_OK(dst.buffer.copy_to_host());
    ASSERT_TRUE(same(dst.storage, want)) << "host to device";
}

template<typename T>
void device_to_device(const Shape &from, const Shape &to) {
    View<T> src(from, 1), dst(to, 100);
    const std::vector<T> want = expected_after(src, from, dst, to);
    upload(src);
    upload(dst);
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, src.raw(), vulkan_interface(), dst.raw()));
    src.buffer.device_free();
    dst.buffer.set_device_dirty();
    ASSERT_OK(dst.buffer.copy_to_host());
    ASSERT_TRUE(same(dst.storage, want)) << "device to device";
}

template<typename T>
void round_trip(const Shape &shape) {
    View<T> view(shape, 5);
    const std::vector<T> before = view.storage;
    upload(view);
    for_overlap(shape, shape,
                [&](const std::vector<int> &position) { view.storage[index_of(shape, position)] = (T)99; });
    view.buffer.set_device_dirty();
    ASSERT_OK(view.buffer.copy_to_host());
    ASSERT_TRUE(same(view.storage, before)) << "round trip";
}

template<typename T>
void every_direction(const Shape &from, const Shape &to) {
    device_to_host<T>(from, to);
    host_to_device<T>(from, to);
    device_to_device<T>(from, to);
}

Shape dense(const std::vector<int> &extents, int min = 0) {
    Shape shape;
    int stride = 1;
    for (int extent : extents) {
        shape.push_back({min, extent, stride});
        stride *= extent;
    }
    return shape;
}

// Every dimension padded by a few elements; x with a stride of its own.
Shape padded(const std::vector<int> &extents, int x_stride, int padding, int min = 0) {
    Shape shape;
    int stride = x_stride;
    for (int extent : extents) {
        shape.push_back({min, extent, stride});
        stride = stride * extent + padding;
    }
    return shape;
}

template<typename T>
class GpuCopies : public ::testing::Test {};
using Types = ::testing::Types<uint8_t, uint16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(GpuCopies, Types);

TYPED_TEST(GpuCopies, SameShape) {
    for (int n : {1, 2, 3, 31, 100, 1001}) every_direction<TypeParam>(dense({n}), dense({n}));
    every_direction<TypeParam>(dense({7, 5, 3}), dense({7, 5, 3}));
    every_direction<TypeParam>(padded({7, 5, 3}, 1, 3), padded({7, 5, 3}, 1, 3));
}

TYPED_TEST(GpuCopies, OtherStrides) {
    every_direction<TypeParam>(dense({9, 4}), padded({9, 4}, 1, 7));
    every_direction<TypeParam>(padded({9, 4}, 1, 7), dense({9, 4}));
    every_direction<TypeParam>(dense({9, 4}), padded({9, 4}, 2, 1));
    every_direction<TypeParam>(padded({9, 4}, 3, 2), padded({9, 4}, 2, 5));
    // Planar and interleaved.
    const Shape planar = {{0, 10, 1}, {0, 6, 10}, {0, 3, 60}}, interleaved = {{0, 10, 3}, {0, 6, 30}, {0, 3, 1}};
    every_direction<TypeParam>(planar, interleaved);
    every_direction<TypeParam>(interleaved, planar);
    every_direction<TypeParam>(interleaved, interleaved);
    // Transposed.
    every_direction<TypeParam>({{0, 11, 1}, {0, 8, 11}}, {{0, 11, 8}, {0, 8, 1}});
}

TYPED_TEST(GpuCopies, MinsThatDiffer) {
    // The destination inside the source.
    every_direction<TypeParam>(dense({20, 10}), {{3, 9, 1}, {2, 5, 9}});
    every_direction<TypeParam>({{-5, 20, 1}, {100, 10, 20}}, {{-2, 9, 1}, {103, 5, 13}});
    // The source inside the destination.
    every_direction<TypeParam>({{3, 9, 1}, {2, 5, 9}}, dense({20, 10}));
    // Overlapping corners only.
    every_direction<TypeParam>(dense({10, 10}), {{6, 10, 1}, {7, 10, 10}});
    every_direction<TypeParam>({{6, 10, 1}, {7, 10, 10}}, dense({10, 10}));
    every_direction<TypeParam>(dense({10, 10}), {{6, 10, 1}, {-4, 10, 11}});
}

TYPED_TEST(GpuCopies, RoundTripsOfManyShapes) {
    round_trip<TypeParam>(padded({5, 4, 3}, 1, 2));
    round_trip<TypeParam>(padded({5, 4, 3}, 2, 0));
    round_trip<TypeParam>({{0, 10, 3}, {0, 6, 30}, {0, 3, 1}});
    round_trip<TypeParam>({{0, 13, 1}, {0, 1, 77}, {0, 4, 16}});
    round_trip<TypeParam>({{0, 1, 1}, {0, 9, 5}});
    round_trip<TypeParam>({});
}

TYPED_TEST(GpuCopies, SixteenDimensions) {
    for (int dimensions : {4, 5, 8, 15, 16}) {
        std::vector<int> extents(dimensions, 1);
        for (int d = 0; d<dimensions; d += dimensions> 8 ? 2 : 1) extents[d] = 2;
        extents[0] = 3;
        every_direction<TypeParam>(dense(extents), dense(extents));
        every_direction<TypeParam>(dense(extents), padded(extents, 1, 1));
        every_direction<TypeParam>(padded(extents, 2, 1), dense(extents));
    }
}

// Thousands of rows of one element: as many copy regions if done naively.
TYPED_TEST(GpuCopies, ManyTinyRows) {
    every_direction<TypeParam>({{0, 1, 1}, {0, 20000, 2}}, {{0, 1, 1}, {0, 20000, 3}});
    every_direction<TypeParam>({{0, 3, 1}, {0, 20000, 4}}, dense({3, 20000}));
}

using Line = Runtime::Buffer<int32_t, 1>;

int line_value(int i) { return i * 13 + 7; }

Line device_line(int n) {
    Line line(n);
    fill(line, [](const int *p) { return line_value(p[0]); });
    EXPECT_EQ(line.copy_to_device(vulkan_interface()), 0);
    return line;
}

// Views of one buffer: the result is that of a copy through a temporary, forward and backward.
TEST(GpuCopiesWithin, OverlappingViewsOfOneBuffer) {
    for (int n : {100, 5000}) {
        for (int shift : {-40, -3, -1, 1, 2, 17, 50}) {
            Line base = device_line(n);
            const int from = 45, extent = n - 100 + 4;
            {
                Line src = base.cropped(0, from, extent), dst = base.cropped(0, from + shift, extent);
                dst.raw_buffer()->dim[0].min = from;
                ASSERT_OK(
                    vulkan_interface()->buffer_copy(nullptr, src.raw_buffer(), vulkan_interface(), dst.raw_buffer()));
            }
            base.set_device_dirty();
            base.copy_to_host();
            ASSERT_TRUE(matches(base,
                                [&](const int *p) {
                                    const int i = p[0] - (from + shift);
                                    return i >= 0 && i < extent ? line_value(from + i) : line_value(p[0]);
                                }))
                << "n = " << n << ", shift " << shift;
        }
    }
}

// Into a part of a device buffer: the rest of the base stays.
TEST(GpuCopiesWithin, IntoACropOfADeviceBuffer) {
    Runtime::Buffer<uint8_t, 2> base(50, 40);
    fill(base, [](const int *p) { return p[0] + p[1]; });
    ASSERT_OK(base.copy_to_device(vulkan_interface()));
    Runtime::Buffer<uint8_t, 2> src(30, 20);
    fill(src, [](const int *p) { return 255 - p[0] - p[1]; });
    ASSERT_OK(src.copy_to_device(vulkan_interface()));
    {
        Runtime::Buffer<uint8_t, 2> crop = base.cropped({{7, 21}, {9, 13}});
        crop.raw_buffer()->dim[0].min = 2;
        crop.raw_buffer()->dim[1].min = 3;
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, src.raw_buffer(), vulkan_interface(), crop.raw_buffer()));
    }
    base.set_device_dirty();
    base.copy_to_host();
    EXPECT_TRUE(matches(base, [](const int *p) {
        const int x = p[0] - 7, y = p[1] - 9;
        const bool inside = x >= 0 && x < 21 && y >= 0 && y < 13;
        return inside ? 255 - (x + 2) - (y + 3) : p[0] + p[1];
    }));
}

// Shapes that have no coordinate in common: nothing to copy, and no error.
TEST(GpuCopiesWithin, NothingInCommon) {
    Line a = device_line(20), b(20);
    b.set_min(100);
    fill(b, [](const int *) { return 5; });
    ASSERT_OK(b.copy_to_device(vulkan_interface()));
    Context context;
    EXPECT_EQ(vulkan_interface()->buffer_copy(context.raw(), a.raw_buffer(), vulkan_interface(), b.raw_buffer()), 0)
        << context.all();
    b.set_device_dirty();
    b.copy_to_host();
    EXPECT_TRUE(matches(b, [](const int *) { return 5; }));
}

TEST(GpuCopiesWithin, SeventeenDimensionsAreRefused) {
    Context context;
    std::vector<int> extents(17, 1);
    View<int32_t> view(dense(extents), 1);
    view.buffer.set_host_dirty();
    const int code = vulkan_interface()->copy_to_device(context.raw(), view.raw(), vulkan_interface());
    EXPECT_NE(code, 0);
    EXPECT_TRUE(one_message(context, {"17", "16"}));
    view.buffer.set_host_dirty(false);
}

// More than 64 MiB, and more than lavapipe's maxStorageBufferRange: staging is throttled, chunks are put together
// right.
TEST(GpuCopiesLarge, UploadsAndDownloads) {
    for (int megabytes : {65, 150}) {
        const int n = megabytes << 18;
        Runtime::Buffer<uint32_t, 1> big(n);
        fill(big, [](const int *p) { return scramble((uint32_t)p[0]); });
        ASSERT_OK(big.copy_to_device(vulkan_interface()));
        std::memset(big.data(), 0, big.size_in_bytes());
        big.set_device_dirty();
        ASSERT_OK(big.copy_to_host());
        ASSERT_TRUE(matches(big, [](const int *p) { return scramble((uint32_t)p[0]); })) << megabytes << " MiB";
    }
}

// Many uploads in a row, 200 MiB with no wait in between.
TEST(GpuCopiesLarge, ManyUploadsWithoutASync) {
    const int n = 5 << 18;
    std::vector<Runtime::Buffer<uint32_t, 1>> buffers;
    Runtime::Buffer<uint32_t, 1> source(n);
    for (uint32_t i = 0; i < 40; i++) {
        source.fill(i * 77);
        source.set_host_dirty();
        buffers.emplace_back(nullptr, n);
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, source.raw_buffer(), vulkan_interface(),
                                                  buffers.back().raw_buffer()));
        source.set_host_dirty(false);
    }
    for (uint32_t i = 0; i < 40; i++) {
        buffers[i].set_device_dirty();
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, buffers[i].raw_buffer(), nullptr, source.raw_buffer()));
        ASSERT_TRUE(matches(source, [&](const int *) { return i * 77; })) << "buffer " << i;
        source.set_host_dirty(false);
    }
}

TEST(GpuCopiesLarge, StridedOver64MiB) {
    // Interleaved on the host, planar on the device: 3 x 24 MiB.
    const int width = 4096, height = 1536;
    Runtime::Buffer<uint32_t, 3> interleaved = Runtime::Buffer<uint32_t, 3>::make_interleaved(width, height, 3);
    Runtime::Buffer<uint32_t, 3> planar(width, height, 3);
    fill(interleaved, [](const int *p) { return p[0] + p[1] * 5000 + p[2] * 100000000; });
    ASSERT_OK(
        vulkan_interface()->buffer_copy(nullptr, interleaved.raw_buffer(), vulkan_interface(), planar.raw_buffer()));
    planar.set_host_dirty(false);
    planar.set_device_dirty();
    ASSERT_OK(planar.copy_to_host());
    EXPECT_TRUE(matches(planar, [](const int *p) { return p[0] + p[1] * 5000 + p[2] * 100000000; }));
}

TEST(GpuCopiesLarge, DeviceToDevice) {
    const int n = 25 << 20;
    Runtime::Buffer<uint32_t, 1> a(n), b(n);
    fill(a, [](const int *p) { return scramble((uint32_t)p[0]); });
    ASSERT_OK(a.copy_to_device(vulkan_interface()));
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, a.raw_buffer(), vulkan_interface(), b.raw_buffer()));
    b.set_device_dirty();
    ASSERT_OK(b.copy_to_host());
    EXPECT_TRUE(matches(b, [](const int *p) { return scramble((uint32_t)p[0]); }));
}

}  // namespace
