// Copies between strided views, whatever the strides: few commands, exactly the bytes that are named, no other.
//
// Both sides are views into arrays of bytes that are known to the last one, on the host and on the device: elements of
// 1 to 16 bytes, up to 4 dimensions, strides that are permuted, padded, negative, 0, or that overlap (the source's).
// What the destination's whole array holds afterwards is compared with a naive loop. The number of commands that the
// driver sees does not grow with the number of elements.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: fails (sizes that are no multiple of the
// device's alignment lose their tail; a command for each run).

#include "support.h"

#include <numeric>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Bytes = Runtime::Buffer<uint8_t, 1>;

struct Shape {
    int element = 1;  // bytes
    int64_t offset = 0;
    std::vector<int> extents;
    std::vector<int64_t> strides;  // in elements

    // From the lowest byte to the element of minimal coordinates, and the bytes from the lowest to the highest.
    void measure(int64_t *minimal, int64_t *span) const {
        int64_t low = 0, high = 0;
        for (size_t d = 0; d < extents.size(); d++) {
            const int64_t reach = strides[d] * (extents[d] - 1);
            (reach < 0 ? low : high) += reach;
        }
        *minimal = -low * element;
        *span = (high - low + 1) * element;
    }
};

// An array on the host and on the device, of the same content at first.
struct Array {
    std::vector<uint8_t> bytes;
    Bytes device;

    Array(size_t size, uint32_t salt) : bytes(size), device((int)size) {
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)scramble((uint32_t)i + salt);
        std::memcpy(device.data(), bytes.data(), size);
        device.set_host_dirty();
        EXPECT_TRUE(succeeded([&] { return device.copy_to_device(vulkan_interface()); }));
        std::memset(device.data(), 0, size);
    }
    std::vector<uint8_t> downloaded() {
        device.set_host_dirty(false);
        device.set_device_dirty();
        EXPECT_TRUE(succeeded([&] { return device.copy_to_host(); }));
        return {device.data(), device.data() + bytes.size()};
    }
};

// A halide_buffer_t over a part of an array: of its host side, or, by a crop, of its device side.
struct View {
    halide_buffer_t raw = {};
    std::vector<halide_dimension_t> dims;
    bool cropped = false;

    View(Array &array, const Shape &shape, bool on_device) {
        if (on_device) {
            halide_dimension_t at[1] = {{(int)shape.offset, (int)(array.bytes.size() - shape.offset), 1, 0}};
            raw.dim = at;
            raw.dimensions = 1;
            raw.type = halide_type_of<uint8_t>();
            EXPECT_EQ(vulkan_interface()->device_crop(nullptr, array.device.raw_buffer(), &raw), 0);
            cropped = true;
            raw.set_device_dirty();
        } else {
            raw.host = array.bytes.data() + shape.offset;
            raw.set_host_dirty();
        }
        for (size_t d = 0; d < shape.extents.size(); d++) dims.emplace_back(0, shape.extents[d], (int)shape.strides[d]);
        raw.type = halide_type_t(halide_type_uint, (uint8_t)(8 * shape.element));
        raw.dim = dims.data();
        raw.dimensions = (int)dims.size();
    }
    ~View() {
        if (!cropped) return;
        EXPECT_EQ(vulkan_interface()->device_release_crop(nullptr, &raw), 0);
    }
    View(const View &) = delete;
};

void naive_copy(const std::vector<uint8_t> &from, const Shape &f, std::vector<uint8_t> &to, const Shape &t) {
    std::vector<int> at(f.extents.size(), 0);
    for (;;) {
        int64_t source = f.offset, destination = t.offset;
        for (size_t d = 0; d < at.size(); d++) {
            source += at[d] * f.strides[d] * f.element;
            destination += at[d] * t.strides[d] * t.element;
        }
        std::memcpy(&to[destination], &from[source], f.element);
        size_t d = 0;
        for (; d < at.size(); d++) {
            if (++at[d] < f.extents[d]) break;
            at[d] = 0;
        }
        if (d == at.size()) return;
    }
}

::testing::AssertionResult same(const std::vector<uint8_t> &got, const std::vector<uint8_t> &want) {
    for (size_t i = 0; i < want.size(); i++) {
        if (got[i] != want[i])
            return ::testing::AssertionFailure()
                   << "byte " << i << " of " << want.size() << " is " << +got[i] << " instead of " << +want[i];
    }
    return ::testing::AssertionSuccess();
}

enum class Way { host_to_device, device_to_host, device_to_device };

::testing::AssertionResult copies(const Shape &f, const Shape &t, size_t from_bytes, size_t to_bytes, Way way) {
    Array from(from_bytes, 1), to(to_bytes, 99);
    std::vector<uint8_t> want = to.bytes;
    naive_copy(from.bytes, f, want, t);
    {
        View source(from, f, way != Way::host_to_device), destination(to, t, way != Way::device_to_host);
        const int code = vulkan_interface()->buffer_copy(
            nullptr, &source.raw, way == Way::device_to_host ? nullptr : vulkan_interface(), &destination.raw);
        if (code != 0) return ::testing::AssertionFailure() << "buffer_copy returned " << code;
    }
    return same(way == Way::device_to_host ? to.bytes : to.downloaded(), want);
}

class GpuStridedCopies : public ::testing::Test {
protected:
    std::mt19937 random{20261};

    int below(int n) { return (int)(random() % (uint32_t)n); }
    // A destination: no two elements in one place, but for dimensions of stride 0, where the last one stands.
    Shape destination(int element, const std::vector<int> &extents) {
        Shape shape{element, 0, extents, std::vector<int64_t>(extents.size())};
        std::vector<size_t> order(extents.size());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        int64_t stride = 1 + below(3);
        for (size_t d : order) {
            shape.strides[d] = below(3) == 0 ? -stride : stride;
            stride = stride * extents[d] + below(4);
            if (below(10) == 0) shape.strides[d] = 0;
        }
        return shape;
    }
    Shape source(int element, const std::vector<int> &extents) {
        Shape shape = destination(element, extents);
        for (int64_t &stride : shape.strides) {
            if (below(8) == 0) stride = below(9) - 4;  // overlapping
        }
        return shape;
    }
    // Gives the shape a place in an array, and the array's size.
    size_t place(Shape &shape) {
        int64_t minimal, span;
        shape.measure(&minimal, &span);
        const int64_t before = below(2) ? 4 * below(20) : below(70);
        shape.offset = before + minimal;
        return (size_t)(before + span + below(70));
    }
};

TEST_F(GpuStridedCopies, RandomShapes) {
    for (int round = 0; round < 250; round++) {
        std::vector<int> extents(1 + below(4));
        for (int &extent : extents) extent = 1 + below(extents.size() == 1 ? 3000 : extents.size() == 2 ? 60 : 12);
        const int element = 1 << below(5);
        Shape from = source(element, extents), to = destination(element, extents);
        const size_t from_bytes = place(from), to_bytes = place(to);
        for (Way way : {Way::host_to_device, Way::device_to_host, Way::device_to_device}) {
            ASSERT_TRUE(copies(from, to, from_bytes, to_bytes, way)) << "round " << round << ", way " << (int)way;
        }
    }
}

// One array, both views in it: all is read before anything is written.
TEST_F(GpuStridedCopies, ViewsOfOneArray) {
    for (int round = 0; round < 60; round++) {
        const int element = 1 << below(5);
        const std::vector<int> extents = {1 + below(40), 1 + below(40)};
        Shape from = source(element, extents), to = destination(element, extents);
        const size_t bytes = std::max(place(from), place(to));
        Array array(bytes, 5);
        std::vector<uint8_t> want = array.bytes;
        naive_copy(array.bytes, from, want, to);
        {
            View source(array, from, true), destination(array, to, true);
            ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, &source.raw, vulkan_interface(), &destination.raw));
        }
        ASSERT_TRUE(same(array.downloaded(), want)) << "round " << round;
    }
}

// Every third of a million elements: two commands for each 4 MiB of them at most, where there is no direct way.
TEST_F(GpuStridedCopies, FewCommands) {
    for (int element : {1, 2, 4, 8}) {
        Shape from{element, 0, {1000, 1000}, {3, 3001}}, to{element, 0, {1000, 1000}, {2, 2003}};
        const size_t from_bytes = 3001 * 1000 * element, to_bytes = 2003 * 1000 * element;
        for (Way way : {Way::host_to_device, Way::device_to_host, Way::device_to_device}) {
            Array source_array(from_bytes, 1), destination_array(to_bytes, 99);
            std::vector<uint8_t> want = destination_array.bytes;
            naive_copy(source_array.bytes, from, want, to);
            {
                View source(source_array, from, way != Way::host_to_device);
                View destination(destination_array, to, way != Way::device_to_host);
                hv_layer_reset();
                ASSERT_OK(vulkan_interface()->buffer_copy(
                    nullptr, &source.raw, way == Way::device_to_host ? nullptr : vulkan_interface(), &destination.raw));
                EXPECT_LE(hv_layer_count("vkCmdCopyBuffer") + hv_layer_count("vkCmdDispatch"),
                          2 * (1 + 1000000u * element / (4 << 20)))
                    << element << " bytes, way " << (int)way;
            }
            ASSERT_TRUE(
                same(way == Way::device_to_host ? destination_array.bytes : destination_array.downloaded(), want));
        }
    }
}

}  // namespace
