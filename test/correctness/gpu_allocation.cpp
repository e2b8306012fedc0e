// Device memory: no two live regions overlap, freed memory comes back joined, and what is given back really goes back.
//
// A long random run of malloc, crop and free over sizes from 1 byte to 8 MiB keeps every live buffer filled with a
// number of its own and checks it before the free: an overlap, a stale offset or a region too short shows as a wrong
// number. The same program runs with several HL_VK_ALLOC_CONFIG (CTest entries gpu_allocation.*). What the driver holds
// is read from the counting layer, which must be on.
//
// Stock on lavapipe: fails on the first size that is no multiple of 64; with a minimum block of 0 it allocates nothing.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Bytes = Runtime::Buffer<uint8_t, 1>;

constexpr int64_t kMiB = 1 << 20;
// What may stay on the device once every buffer is freed and unused memory released: arguments of the 16 submissions.
constexpr int64_t kResting = 8 * kMiB;

class GpuAllocation : public ::testing::Test {
protected:
    Callable paint = compile_paint();
    void (*release)(void *, const halide_device_interface_t *) = vulkan_interface()->device_release;

    static Callable compile_paint() {
        Var x("x"), xi("xi");
        Param<int> id("id");
        Func f("paint");
        f(x) = cast<uint8_t>(id + (x & 15));
        f.gpu_tile(x, xi, 256, TailStrategy::GuardWithIf);
        return f.compile_to_callable({id}, gpu_target());
    }
    static void trim() {
        ASSERT_OK(runtime_call<int(void *)>("halide_vulkan_release_unused_device_allocations")(nullptr));
    }
    static void reuse(bool flag) {
        ASSERT_OK(runtime_call<int(void *, bool)>("halide_reuse_device_allocations")(nullptr, flag));
    }
    static void sync() {
        ASSERT_OK(runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global")(
            nullptr, vulkan_interface()));
    }
    // Seven sizes in eight are small, and all magnitudes occur.
    static int random_size(std::mt19937 &random) {
        const int64_t most = largest_block();
        const int bits = random() % 8 ? random() % 17 : 17 + random() % 7;
        return (int)std::min<int64_t>(most, (1 << bits) - (1 << bits) / 2 + random() % (1 << bits));
    }
    // The third number of HL_VK_ALLOC_CONFIG, MiB: what is larger is refused and would test nothing here.
    static int64_t largest_block() {
        const char *config = std::getenv("HL_VK_ALLOC_CONFIG");
        int pool = 0, least = 0, most = 0;
        if (config) std::sscanf(config, "%d:%d:%d", &pool, &least, &most);
        return (most ? most : 8) * kMiB;
    }
};

struct Live {
    Bytes buffer;
    int id;
};

// Reads three windows of the buffer, its ends included, through crops.
::testing::AssertionResult holds_its_id(Live &live) {
    const int n = live.buffer.dim(0).extent(), window = std::min(n, 100);
    for (int at : {0, (n - window) / 2, n - window}) {
        halide_dimension_t shape[1] = {{at, window, 1, 0}};
        uint8_t bytes[100] = {};
        // Only the device side of the crop is real: host memory of its own stands in for the window.
        Bytes view(bytes, 1, shape);
        int code = vulkan_interface()->device_crop(nullptr, live.buffer.raw_buffer(), view.raw_buffer());
        if (code != 0) return ::testing::AssertionFailure() << "device_crop returned " << code;
        view.set_device_dirty();
        code = view.copy_to_host();
        vulkan_interface()->device_release_crop(nullptr, view.raw_buffer());
        if (code != 0) return ::testing::AssertionFailure() << "copy_to_host returned " << code;
        for (int i = 0; i < window; i++) {
            const uint8_t want = (uint8_t)(live.id + ((at + i) & 15));
            if (bytes[i] != want) {
                return ::testing::AssertionFailure()
                       << "byte " << at + i << " of " << n << " is " << +bytes[i] << " instead of " << +want;
            }
        }
    }
    return ::testing::AssertionSuccess();
}

TEST_F(GpuAllocation, RandomMallocFreeAndCrop) {
    std::mt19937 random(2026);
    std::vector<Live> live;
    int64_t live_bytes = 0;
    const bool full = std::getenv("HV_FULL") != nullptr;
    const char *asked = std::getenv("HV_STEPS");
    const int steps = asked ? std::atoi(asked) : full ? 100000 : std::getenv("HL_VK_ALLOC_CONFIG") ? 3000 : 20000;
    for (int step = 0; step < steps; step++) {
        const bool enough = live.size() > 60 || live_bytes > 64 * kMiB;
        if (!enough && random() % 2) {
            Live one{Bytes(nullptr, random_size(random)), step};
            ASSERT_OK(one.buffer.device_malloc(vulkan_interface()));
            ASSERT_OK(paint(step, one.buffer));
            live_bytes += one.buffer.dim(0).extent();
            live.push_back(one);
        } else if (!live.empty()) {
            const size_t k = random() % live.size();
            // Checked always when large, else now and then: the check waits, and most frees should find work in flight.
            const bool check = full || live[k].buffer.dim(0).extent() > 100000 || random() % 4 == 0;
            if (check) {
                ASSERT_TRUE(holds_its_id(live[k])) << "step " << step;
            }
            live_bytes -= live[k].buffer.dim(0).extent();
            live[k].buffer.device_free();
            std::swap(live[k], live.back());
            live.pop_back();
        }
        if (step % 997 == 0) trim();
    }
    for (Live &one : live) ASSERT_TRUE(holds_its_id(one));
    live.clear();
    sync();
    trim();
    EXPECT_LE((int64_t)hv_layer_allocated_bytes(), kResting);
}

// A buffer freed next to a freed one joins it: a hundred pieces of 100 KB make room for one of 10 MB, in memory that
// was there already.
TEST_F(GpuAllocation, FreedNeighboursJoin) {
    if (largest_block() < 8 * kMiB) return;  // under a limit on blocks there is nothing to join
    trim();
    Bytes whole(nullptr, 8 * kMiB);
    ASSERT_OK(whole.device_malloc(vulkan_interface()));
    whole.device_free();
    sync();
    const uint64_t before = hv_layer_allocated_bytes();
    for (int round = 0; round < 5; round++) {
        std::vector<Bytes> pieces;
        for (int i = 0; i < 64; i++) {
            pieces.emplace_back(nullptr, 100000);
            ASSERT_OK(pieces.back().device_malloc(vulkan_interface()));
            ASSERT_OK(paint(i, pieces.back()));
        }
        for (int i = 0; i < 64; i++) pieces[(i * 29) % 64].device_free();
        Bytes again(nullptr, 8 * kMiB);
        ASSERT_OK(again.device_malloc(vulkan_interface()));
        ASSERT_OK(paint(round, again));
    }
    EXPECT_LE(hv_layer_allocated_bytes(), before);
}

// reuse = false: a free gives the memory back at once, staging included, and switching it off gives back what is
// cached.
TEST_F(GpuAllocation, WithoutReuseMemoryGoesBack) {
    for (int i = 0; i < 10; i++) {
        Bytes buffer(3 * kMiB + i);
        buffer.fill(i);
        buffer.set_host_dirty();
        ASSERT_OK(buffer.copy_to_device(vulkan_interface()));
        ASSERT_OK(paint(i, buffer));
    }
    sync();
    reuse(false);
    const int64_t resting = hv_layer_allocated_bytes();
    EXPECT_LE(resting, kResting);
    for (int i = 0; i < 30; i++) {
        Bytes buffer(kMiB + i * 5000);
        buffer.fill(i);
        buffer.set_host_dirty();
        ASSERT_OK(buffer.copy_to_device(vulkan_interface()));
        ASSERT_OK(paint(i, buffer));
        if (i % 3 == 0) {
            ASSERT_OK(buffer.copy_to_host());
            ASSERT_TRUE(matches(buffer, [&](const int *p) { return i + (p[0] & 15); }));
        }
        ASSERT_OK(buffer.device_free());
        ASSERT_LE((int64_t)hv_layer_allocated_bytes(), resting + kResting) << "round " << i;
    }
    reuse(true);
}

TEST_F(GpuAllocation, DeviceAndHostMalloc) {
    const halide_device_interface_t *interface = vulkan_interface();
    for (int n : {1, 63, 1000, 100001}) {
        Bytes buffer(nullptr, n);
        ASSERT_OK(interface->device_and_host_malloc(nullptr, buffer.raw_buffer(), interface));
        ASSERT_NE(buffer.raw_buffer()->host, nullptr);
        ASSERT_TRUE(buffer.has_device_allocation());
        std::memset(buffer.raw_buffer()->host, 0xee, n);
        // Ordinary pipelines allocate such a buffer a second time.
        ASSERT_OK(interface->device_malloc(nullptr, buffer.raw_buffer(), interface));
        ASSERT_OK(paint(n, buffer));
        ASSERT_OK(buffer.copy_to_host());
        ASSERT_TRUE(matches(buffer, [&](const int *p) { return n + (p[0] & 15); })) << n;
        ASSERT_OK(interface->device_and_host_free(nullptr, buffer.raw_buffer()));
        EXPECT_EQ(buffer.raw_buffer()->host, nullptr);
        EXPECT_FALSE(buffer.has_device_allocation());
    }
}

// A stage that both sides use is allocated on both, freed under way, and never seen by anyone.
TEST_F(GpuAllocation, IntermediatesUsedOnBothSides) {
    Var x("x"), xi("xi");
    Param<int> salt("salt");
    Func a("a"), b("b"), c("c");
    a(x) = x * 3 + salt;
    b(x) = a(x) + a(x + 1);
    c(x) = a(x) * b(x);
    a.compute_root().gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    b.compute_root();
    c.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable pipeline = c.compile_to_callable({salt}, gpu_target());
    for (int i = 1; i < 60; i++) {
        Runtime::Buffer<int, 1> out(i * 17);
        ASSERT_OK(pipeline(i, out));
        ASSERT_OK(out.copy_to_host());
        ASSERT_TRUE(matches(out, [&](const int *p) {
            const int first = p[0] * 3 + i;
            return first * (2 * first + 3);
        }));
    }
}

// device_malloc of a buffer that has memory already changes nothing.
TEST_F(GpuAllocation, SecondMallocIsNoMalloc) {
    Bytes buffer(5000);
    ASSERT_OK(paint(7, buffer));
    const uint64_t handle = buffer.raw_buffer()->device;
    buffer.raw_buffer()->set_device_dirty(false);
    ASSERT_OK(vulkan_interface()->device_malloc(nullptr, buffer.raw_buffer(), vulkan_interface()));
    EXPECT_EQ(buffer.raw_buffer()->device, handle);
    buffer.set_device_dirty();
    ASSERT_OK(buffer.copy_to_host());
    EXPECT_TRUE(matches(buffer, [](const int *p) { return 7 + (p[0] & 15); }));
}

// Nothing is left when the device is released: every object that was made is destroyed.
TEST_F(GpuAllocation, ReleaseLeavesNothing) {
    {
        Bytes buffer(12345);
        ASSERT_OK(paint(1, buffer));
        ASSERT_OK(buffer.copy_to_host());
    }
    release(nullptr, vulkan_interface());
    EXPECT_EQ(hv_layer_left(), 0);
    EXPECT_EQ(hv_layer_allocated_bytes(), 0u);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

}  // namespace
