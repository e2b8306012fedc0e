// What the runtime and an application lend each other on the runtime's own device: the queue, between acquire_context
// and release_context, and the VkBuffers behind allocations.
//
// The mock carries commands out in order, so a missing barrier shows in no result; the barriers themselves are counted.

#include "mock_devices.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

namespace fault {
namespace {

extern "C" {
int halide_vulkan_wrap_vk_buffer(void *user_context, halide_buffer_t *buffer, uint64_t handle);
int halide_vulkan_detach_vk_buffer(void *user_context, halide_buffer_t *buffer);
}

// What the application may hold of a context.
struct Acquired {
    halide_vulkan_memory_allocator *allocator = nullptr;
    VkInstance instance = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
    uint32_t family = 0;
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;

    Acquired() {
        EXPECT_EQ(halide_vulkan_acquire_context(nullptr, &allocator, &instance, &device, &physical, &queue, &family,
                                                &messenger, true),
                  0);
    }
    void release() { EXPECT_EQ(halide_vulkan_release_context(nullptr, instance, device, queue, messenger), 0); }
};

// A buffer of the application's on the runtime's device.
struct TheirBuffer {
    VkDevice device;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    PFN_vkDestroyBuffer destroy;
    PFN_vkFreeMemory free;

    TheirBuffer(const Acquired &context, uint64_t bytes) : device(context.device) {
        const auto find = (PFN_vkGetInstanceProcAddr)dlsym(mock_file(), "vkGetInstanceProcAddr");
        const auto create = (PFN_vkCreateBuffer)find(context.instance, "vkCreateBuffer");
        const auto allocate = (PFN_vkAllocateMemory)find(context.instance, "vkAllocateMemory");
        const auto bind = (PFN_vkBindBufferMemory)find(context.instance, "vkBindBufferMemory");
        destroy = (PFN_vkDestroyBuffer)find(context.instance, "vkDestroyBuffer");
        free = (PFN_vkFreeMemory)find(context.instance, "vkFreeMemory");
        VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
        info.size = bytes;
        info.usage =
            VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        create(device, &info, nullptr, &buffer);
        VkMemoryAllocateInfo of = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, bytes, 0};
        allocate(device, &of, nullptr, &memory);
        bind(device, buffer, memory, 0);
    }
    ~TheirBuffer() {
        destroy(device, buffer, nullptr);
        free(device, memory, nullptr);
    }
    TheirBuffer(const TheirBuffer &) = delete;
};

class FaultLent : public MockDevices {
protected:
    void SetUp() override {
        MockDevices::SetUp();
        start("plain", {{"HL_VK_FLUSH", "count"}});
    }
    void TearDown() override {
        mock_completion(MOCK_AT_ONCE, 0);
        MockDevices::TearDown();
    }
    // Barriers that wait for whatever an application may have submitted.
    static uint64_t barriers_for_anything() {
        return mock_barriers(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
                             VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
    }
    static uint64_t barriers_between_kernels() {
        return mock_barriers(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                             VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
    }
};

// Work that an application may have submitted while it had the queue is waited for by a barrier. Where the submission
// with that barrier is refused, the barrier never runs, and the next one needs it as much.
TEST_F(FaultLent, ARefusedSubmissionTakesNoBarrierWithIt) {
    Trial run;
    Ints in(100), out(100);
    upload(run, in, 3);
    allocate(run, out);
    launch(run, out, in, 1);
    sync(run);
    mock_reset();
    launch(run, out, in, 2);
    sync(run);
    EXPECT_EQ(barriers_for_anything(), 0u) << "nobody else had the queue";
    Acquired().release();
    mock_reset();
    launch(run, out, in, 3);
    EXPECT_EQ(barriers_for_anything(), 1u);
    ASSERT_TRUE(mock_fail("vkQueueSubmit", -1, VK_ERROR_OUT_OF_HOST_MEMORY));
    EXPECT_NE(halide_device_sync_global(nullptr, vulkan()), 0);
    messages().clear();
    mock_clear();
    mock_reset();
    launch(run, out, in, 4);
    EXPECT_EQ(barriers_for_anything(), 1u) << "the queue's other work is not waited for any more";
    launch(run, out, in, 5);
    EXPECT_EQ(barriers_for_anything(), 1u);
    run.expect_contents("download", out, [](int i) { return i * 3 + 5; });
    EXPECT_TRUE(run.all_right()) << run.said();
}

// A VkBuffer that was got from one buffer and is wrapped by another: two names of one memory.
TEST_F(FaultLent, AnAllocationThatIsWrappedAgainIsTheSameMemory) {
    Trial run;
    Ints in(100), a(100), b(100), c(100);
    upload(run, in, 3);
    allocate(run, a);
    allocate(run, c);
    uintptr_t handle = 0;
    run.step("native handle", [&] {
        handle = halide_vulkan_get_vk_buffer(nullptr, a);
        return handle ? 0 : kNoHandle;
    });
    ASSERT_NE(handle, 0u);
    run.step("wrap", [&] { return halide_vulkan_wrap_vk_buffer(nullptr, b, handle); });
    launch(run, a, in, 1);
    sync(run);
    mock_reset();
    launch(run, a, in, 2);
    EXPECT_EQ(barriers_between_kernels(), 0u);
    launch(run, c, b, 5);
    EXPECT_EQ(barriers_between_kernels(), 1u) << "the second kernel reads what the first writes";
    launch(run, b, in, 7);
    EXPECT_EQ(barriers_between_kernels(), 2u) << "the third writes what the second reads";
    run.expect_contents("download", a, [](int i) { return i * 3 + 7; });
    run.expect_contents("download", c, [](int i) { return i * 3 + 7; });
    // The first name goes while work under the other is on its way.
    mock_completion(MOCK_BY_HAND, 0);
    launch(run, c, b, 9);
    run.step("free", [&] { return a.device_free(); });
    std::vector<Ints> others;
    for (int i = 0; i < 4; i++) {
        others.emplace_back(100);
        allocate(run, others.back());
        launch(run, others.back(), in, 100);
        others.back().set_device_dirty(false);
    }
    mock_completion(MOCK_AFTER_POLLS, 3);
    sync(run);
    launch(run, c, b, 11);
    run.expect_contents("download", c, [](int i) { return i * 3 + 18; });
    b.set_device_dirty(false);
    run.step("detach", [&] { return halide_vulkan_detach_vk_buffer(nullptr, b); });
    is_right(run);
}

// A VkBuffer of the application's on our device that is wrapped for each pipeline anew, and detached after it, is the
// same memory each time: what the next pipeline reads, the one before may still be writing.
TEST_F(FaultLent, ABufferThatIsWrappedAnewIsTheSameMemory) {
    Trial run;
    Ints in(100), a(100), b(100), c(100);
    upload(run, in, 3);
    allocate(run, c);
    Acquired ours;
    const TheirBuffer theirs(ours, 4096);
    ours.release();
    launch(run, c, in, 0);
    sync(run);
    mock_reset();
    run.step("wrap", [&] { return halide_vulkan_wrap_vk_buffer(nullptr, a, (uint64_t)theirs.buffer); });
    launch(run, a, in, 1);
    a.set_device_dirty(false);
    run.step("detach", [&] { return halide_vulkan_detach_vk_buffer(nullptr, a); });
    EXPECT_LE(barriers_between_kernels(), 1u);  // the context was acquired in between
    mock_reset();
    run.step("wrap", [&] { return halide_vulkan_wrap_vk_buffer(nullptr, b, (uint64_t)theirs.buffer); });
    launch(run, c, b, 5);
    EXPECT_EQ(barriers_between_kernels(), 1u) << "the second kernel reads what the first writes";
    run.expect_contents("download", c, [](int i) { return i * 3 + 6; });
    b.set_device_dirty(false);
    run.step("detach", [&] { return halide_vulkan_detach_vk_buffer(nullptr, b); });
    is_right(run);
}

// An application that meets an error of its own while it has the queue ends the process there and then.
TEST_F(FaultLent, TheProcessMayEndWhileTheQueueIsLent) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            alarm(60);
            Trial run;
            small_round_trip(run);
            new Acquired;
            exit(run.all_right() ? 3 : 4);
        },
        ::testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace fault
