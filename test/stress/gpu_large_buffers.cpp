// Buffers of more than 1, 2 and 4 GiB: offsets and sizes that do not fit 32 bits, copies that one command cannot do.
//
// HV_LARGE_GIB: the size in GiB, 1.25 unless said otherwise. Twice as much device memory is needed, and as much on the
// host. A device binds no more than its maxStorageBufferRange to a kernel (4 GiB on many): of a larger buffer the
// kernels here are given parts.

#include "../correctness/support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 2>;

constexpr int kWidth = 1 << 20;  // elements, 4 MiB
constexpr int kPart = 8;         // rows that one kernel computes: 32 MiB

int rows() {
    const char *text = std::getenv("HV_LARGE_GIB");
    return (int)((text ? std::atof(text) : 1.25) * 256);
}

class GpuLargeBuffers : public ::testing::Test {
protected:
    void SetUp() override {
        Var x("x"), y("y"), xi("xi"), yi("yi");
        Func f("position");
        f(x, y) = scramble(x + y * kWidth);
        f.gpu_tile(x, y, xi, yi, 64, 4);
        const Target target = gpu_target({Target::LargeBuffers});
        position = f.compile_to_callable({}, target);
    }
    static uint32_t value(int x, int y) { return scramble((uint32_t)x + (uint32_t)y * kWidth); }

    // Writes the value of its position to each element, part by part, on the device.
    void paint(Words &on_device) {
        for (int y = 0; y < on_device.height(); y += kPart) {
            Words part = on_device.cropped(1, y, std::min(kPart, on_device.height() - y));
            ASSERT_OK(position(part));
            part.set_device_dirty(false);
        }
        on_device.set_device_dirty();
    }
    // Each row's ends, and three rows whole.
    static ::testing::AssertionResult holds(const Words &buffer) {
        for (int y = 0; y < buffer.height(); y++) {
            const bool whole = y == 0 || y == buffer.height() / 2 || y == buffer.height() - 1;
            for (int x = 0; x < buffer.width(); x++) {
                if (!whole && x == 100) x = buffer.width() - 100;
                if (buffer(x, y) != value(x, y))
                    return ::testing::AssertionFailure()
                           << "(" << x << ", " << y << ") is " << buffer(x, y) << " instead of " << value(x, y);
            }
        }
        return ::testing::AssertionSuccess();
    }

    Callable position;
};

TEST_F(GpuLargeBuffers, UpAndDown) {
    Words words(kWidth, rows());
    words.for_each_value([n = 0u](uint32_t &word) mutable { word = scramble(n++); });
    words.set_host_dirty();
    ASSERT_OK(words.copy_to_device(vulkan_interface()));
    words.fill(0);
    words.set_host_dirty(false);
    words.set_device_dirty();
    ASSERT_OK(words.copy_to_host());
    EXPECT_TRUE(holds(words));
}

TEST_F(GpuLargeBuffers, CropsAnywhere) {
    Words words(kWidth, rows());
    ASSERT_OK(words.device_malloc(vulkan_interface()));
    paint(words);
    ASSERT_OK(words.copy_to_host());
    EXPECT_TRUE(holds(words));
}

// As many bytes as a kernel may be given at once are computed at once; more are refused, with size and limit.
TEST_F(GpuLargeBuffers, BoundAsAWhole) {
    Words words(kWidth, rows());
    ASSERT_OK(words.device_malloc(vulkan_interface()));
    Context context;
    const int code = position(context.jit(), words);
    if (code == 0) {
        ASSERT_OK(words.copy_to_host());
        EXPECT_TRUE(holds(words));
        return;
    }
    EXPECT_TRUE(one_message(context, {"maxStorageBufferRange", std::to_string(words.size_in_bytes())}));
    EXPECT_GE(words.size_in_bytes(), (size_t)1 << 31) << "smaller than what any device of today can bind";
    std::printf("refused: %s\n", context.all().c_str());
}

TEST_F(GpuLargeBuffers, CopiedOnTheDevice) {
    Words from(nullptr, kWidth, rows()), to(kWidth, rows());
    ASSERT_OK(from.device_malloc(vulkan_interface()));
    ASSERT_OK(to.device_malloc(vulkan_interface()));
    paint(from);
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, from, vulkan_interface(), to));
    from.set_device_dirty(false);
    to.set_device_dirty();
    ASSERT_OK(to.copy_to_host());
    EXPECT_TRUE(holds(to));
}

// Without the last element of each row: so many runs that a kernel moves them, of at most 1 GiB each time. Once within
// the device, once on the way to the host.
TEST_F(GpuLargeBuffers, CopiedByRows) {
    Words from(nullptr, kWidth, rows());
    ASSERT_OK(from.device_malloc(vulkan_interface()));
    paint(from);
    Words narrow = from.cropped(0, 0, kWidth - 1);
    narrow.set_device_dirty();
    {
        Words to(kWidth - 1, rows());
        ASSERT_OK(to.device_malloc(vulkan_interface()));
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, narrow, vulkan_interface(), to));
        to.set_device_dirty();
        ASSERT_OK(to.copy_to_host());
        EXPECT_TRUE(holds(to));
    }
    Words to(kWidth - 1, rows());
    ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, narrow, nullptr, to));
    EXPECT_TRUE(holds(to));
    narrow.set_device_dirty(false);
    from.set_device_dirty(false);
}

// Onto itself, one row further down: the bytes go by a region of their own.
TEST_F(GpuLargeBuffers, MovedWithinItself) {
    Words words(kWidth, rows());
    ASSERT_OK(words.device_malloc(vulkan_interface()));
    paint(words);
    {
        Words from = words.cropped(1, 0, rows() - 1), to = words.cropped(1, 1, rows() - 1);
        to.raw_buffer()->dim[1].min = 0;  // translate() would drop the device side
        from.set_device_dirty();
        ASSERT_OK(vulkan_interface()->buffer_copy(nullptr, from, vulkan_interface(), to));
        from.set_device_dirty(false);
        to.set_device_dirty(false);
    }
    ASSERT_OK(words.copy_to_host());
    for (int x = 0; x < kWidth; x++) ASSERT_EQ(words(x, 0), value(x, 0));
    EXPECT_TRUE(holds(Words(words.data() + kWidth, kWidth, rows() - 1)));
}

}  // namespace
