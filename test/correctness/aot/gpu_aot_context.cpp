// An application's own Vulkan instance, device and queue, handed to Halide by overriding halide_vulkan_acquire_context.
//
// The application cannot make the runtime's memory allocator, so it leaves that null; the runtime keeps its own state
// for the device, uses the queue only between acquire and release, destroys what it made when the device is released,
// and never what it did not make. Two devices, chosen by the user context, may be used in turn. A VkBuffer of the
// application's can be wrapped.
//
// The counting layer's ledger says whether something is left behind; under the validation layer (label validation)
// vkDestroyDevice says so too.
//
// Stock: the first kernel fails, since it needs an allocator in that call.

#include "application_hooks.h"

#include "HalideBuffer.h"
#include "HalideRuntime.h"
#include "double_and_add.h"

#include "HalideRuntimeVulkan.h"

#include <cstring>
#include <functional>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using Halide::Runtime::Buffer;

extern "C" {
int halide_vulkan_wrap_vk_buffer(void *user_context, halide_buffer_t *buffer, uint64_t handle);
int halide_vulkan_detach_vk_buffer(void *user_context, halide_buffer_t *buffer);
uintptr_t halide_vulkan_get_vk_buffer(void *user_context, halide_buffer_t *buffer);
}

namespace {

std::string last_error;
void on_error(void *, const char *message) { last_error = message; }

void run(Application &application, int n, int salt) {
    Buffer<int32_t, 1> in(n), out(n);
    in.for_each_element([&](int x) { in(x) = x * 5; });
    in.set_host_dirty();
    ASSERT_EQ(double_and_add(&application, in, salt, out), 0);
    ASSERT_EQ(halide_copy_to_host(&application, out), 0);
    for (int x = 0; x < n; x++) ASSERT_EQ(out(x), x * 10 + salt) << "element " << x << " of " << n;
    ASSERT_EQ(halide_device_free(&application, in), 0);
    ASSERT_EQ(halide_device_free(&application, out), 0);
}
void release(Application &application) { halide_device_release(&application, halide_vulkan_device_interface()); }

class GpuAotContext : public ::testing::Test {
protected:
    void SetUp() override { halide_set_error_handler(on_error); }
};

TEST_F(GpuAotContext, RunReleaseRunDestroy) {
    {
        Application application;
        const int64_t before = hv_layer_live("");
        for (int round = 0; round < 3; round++) {
            for (int n : {1, 100, 5000}) run(application, n, round);
            release(application);
            EXPECT_EQ(hv_layer_live(""), before) << "round " << round << ": the runtime left something on the device";
        }
        EXPECT_EQ(application.acquired, application.released);
        EXPECT_GT(application.acquired, 0);
    }
    EXPECT_EQ(hv_layer_live(""), 0);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

// The queue is touched between acquire and release alone: nothing is left open for a thread of the runtime's, and waits
// do not ask the queue.
TEST_F(GpuAotContext, QueueIsUsedWhileItIsLent) {
    Application application;
    run(application, 100, 1);
    application.calls = hv_layer_count_prefix("vkQueue");
    application.counts = true;
    const uint64_t before = hv_layer_count_prefix("vkQueueSubmit");
    for (int round = 0; round < 10; round++) {
        Buffer<int32_t, 1> in(1000), out(1000);
        in.fill(round);
        in.set_host_dirty();
        for (int i = 0; i < 5; i++) ASSERT_EQ(double_and_add(&application, in, i, out), 0);
        usleep(2000);
        ASSERT_EQ(halide_device_sync_global(&application, halide_vulkan_device_interface()), 0);
        ASSERT_EQ(halide_copy_to_host(&application, out), 0);
        ASSERT_EQ(out(999), round * 2 + 4);
        ASSERT_EQ(halide_device_free(&application, in), 0);
        ASSERT_EQ(halide_device_free(&application, out), 0);
    }
    release(application);
    application.counts = false;
    EXPECT_GE(hv_layer_count_prefix("vkQueueSubmit") - before, 10u);
    EXPECT_EQ(application.submits_while_away, 0u);
}

// Two user contexts share one device and its queue, in turn and from two threads; either may release it.
TEST_F(GpuAotContext, TwoContextsOnOneDevice) {
    {
        Application one;
        Application other(one);
        const int64_t before = hv_layer_live("");
        for (int round = 0; round < 10; round++) {
            run(one, 300 + round, round);
            run(other, 700 + round, -round);
        }
        std::thread thread([&] {
            for (int round = 0; round < 30; round++) run(other, 100 + round, round);
        });
        for (int round = 0; round < 30; round++) run(one, 200 + round, -round);
        thread.join();
        release(other);
        EXPECT_EQ(hv_layer_live(""), before) << "the runtime left something on the device";
        run(one, 60, 6);
        run(other, 50, 5);
        release(one);
        EXPECT_EQ(hv_layer_live(""), before);
        EXPECT_EQ(one.acquired, one.released);
        EXPECT_EQ(other.acquired, other.released);
    }
    EXPECT_EQ(hv_layer_live(""), 0);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

TEST_F(GpuAotContext, TwoDevicesInTurn) {
    {
        Application one, two;
        for (int round = 0; round < 20; round++) {
            run(one, 300 + round, round);
            run(two, 700 + round, -round);
        }
        release(one);
        run(two, 50, 5);
        release(two);
        run(one, 60, 6);
        release(one);
    }
    EXPECT_EQ(hv_layer_live(""), 0);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

// A device that is gone, and a new one that may have the same address.
TEST_F(GpuAotContext, DevicesOneAfterTheOther) {
    for (int round = 0; round < 4; round++) {
        Application application;
        run(application, 1000, round);
        release(application);
    }
    EXPECT_EQ(hv_layer_live(""), 0);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

// A child after fork can use no device that its parent has used, the application's neither: it is told so by each call,
// and frees say nothing.
TEST_F(GpuAotContext, AForkedChildIsRefused) {
    Application application;
    Buffer<int32_t, 1> in(1000), out(1000);
    in.fill(4);
    in.set_host_dirty();
    ASSERT_EQ(double_and_add(&application, in, 3, out), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);  // a call that hangs ends it
        const int acquired = application.acquired;
        bool refused = halide_copy_to_host(&application, out) < 0 && last_error.find("fork") != std::string::npos;
        last_error.clear();
        double_and_add(&application, in, 5, out);  // without checks it returns 0 all the same
        refused = refused && last_error.find("fork") != std::string::npos && application.acquired == acquired;
        last_error.clear();
        const bool freed = halide_device_free(&application, in) == 0 && halide_device_free(&application, out) == 0;
        _exit(refused && freed && last_error.empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    ASSERT_EQ(halide_copy_to_host(&application, out), 0) << last_error;
    EXPECT_EQ(out(999), 11);
    release(application);
}

TEST_F(GpuAotContext, FailedAcquireIsAnError) {
    last_error.clear();
    Buffer<int32_t, 1> in(100), out(100);
    in.fill(1);
    in.set_host_dirty();
    EXPECT_NE(double_and_add(nullptr, in, 1, out), 0);
    EXPECT_NE(last_error, "");
}

// Each refused by name, with nothing left behind; a context that is whole works afterwards.
TEST_F(GpuAotContext, ContextsThatLackSomethingAreRefused) {
    Application whole;
    const int64_t before = hv_layer_live("");
    const auto refusal = [&](const std::function<void(Application &)> &spoil) {
        Application spoilt(whole);
        spoil(spoilt);
        Buffer<int32_t, 1> in(100), out(100);
        in.fill(1);
        in.set_host_dirty();
        last_error.clear();
        double_and_add(&spoilt, in, 1, out);  // without checks it returns 0 all the same
        EXPECT_EQ(spoilt.acquired, spoilt.released);
        EXPECT_EQ(hv_layer_live(""), before);
        return last_error;
    };
    EXPECT_NE(refusal([](Application &a) { a.queue = VK_NULL_HANDLE; }).find("and no queue"), std::string::npos);
    EXPECT_NE(refusal([](Application &a) { a.physical = VK_NULL_HANDLE; }).find("no physical device"),
              std::string::npos);
    EXPECT_NE(refusal([](Application &a) { a.instance = VK_NULL_HANDLE; }).find("no instance"), std::string::npos);
    EXPECT_NE(refusal([](Application &a) { a.device = VK_NULL_HANDLE; }).find("no device"), std::string::npos);
    EXPECT_NE(refusal([](Application &a) { a.family = 77; }).find("family 77; those that compute are 0"),
              std::string::npos);
    run(whole, 1000, 3);
    release(whole);
    EXPECT_EQ(hv_layer_live(""), before);
}

// The application's own work on the queue, between Halide's calls and under the lock.
TEST_F(GpuAotContext, QueueIsShared) {
    Application application;
    VkFenceCreateInfo info = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkFence fence = VK_NULL_HANDLE;
    ASSERT_EQ(vkCreateFence(application.device, &info, nullptr, &fence), VK_SUCCESS);
    for (int round = 0; round < 20; round++) {
        run(application, 200 + round, round);
        std::lock_guard<std::mutex> lock(application.queue_lock);
        ASSERT_EQ(vkQueueSubmit(application.queue, 0, nullptr, fence), VK_SUCCESS);
        ASSERT_EQ(vkWaitForFences(application.device, 1, &fence, VK_TRUE, ~0ull), VK_SUCCESS);
        ASSERT_EQ(vkResetFences(application.device, 1, &fence), VK_SUCCESS);
    }
    vkDestroyFence(application.device, fence, nullptr);
    release(application);
}

// A buffer of the application's: wrapped, read and written by pipelines, and still the application's afterwards.
struct OwnBuffer {
    Application &application;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    int32_t *mapped = nullptr;
    int n;

    OwnBuffer(Application &application, int n) : application(application), n(n) {
        VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
        info.size = (VkDeviceSize)n * 4;
        info.usage =
            VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        EXPECT_EQ(vkCreateBuffer(application.device, &info, nullptr, &buffer), VK_SUCCESS);
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(application.device, buffer, &needs);
        VkPhysicalDeviceMemoryProperties types;
        vkGetPhysicalDeviceMemoryProperties(application.physical, &types);
        const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        uint32_t type = 0;
        while (!(needs.memoryTypeBits >> type & 1) || (types.memoryTypes[type].propertyFlags & wanted) != wanted)
            type++;
        VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
        EXPECT_EQ(vkAllocateMemory(application.device, &allocate, nullptr, &memory), VK_SUCCESS);
        EXPECT_EQ(vkBindBufferMemory(application.device, buffer, memory, 0), VK_SUCCESS);
        EXPECT_EQ(vkMapMemory(application.device, memory, 0, VK_WHOLE_SIZE, 0, (void **)&mapped), VK_SUCCESS);
        for (int i = 0; i < n; i++) mapped[i] = i * 5;
    }
    ~OwnBuffer() {
        vkDestroyBuffer(application.device, buffer, nullptr);
        vkFreeMemory(application.device, memory, nullptr);
    }
    // By a command of the application's own on the queue, under its lock.
    void fill_on_device(uint32_t value) {
        VkCommandPoolCreateInfo pool_info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
        pool_info.queueFamilyIndex = application.family;
        VkCommandPool pool = VK_NULL_HANDLE;
        ASSERT_EQ(vkCreateCommandPool(application.device, &pool_info, nullptr, &pool), VK_SUCCESS);
        VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                                VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        VkCommandBuffer commands = VK_NULL_HANDLE;
        ASSERT_EQ(vkAllocateCommandBuffers(application.device, &allocate, &commands), VK_SUCCESS);
        VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
        ASSERT_EQ(vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
        vkCmdFillBuffer(commands, buffer, 0, VK_WHOLE_SIZE, value);
        ASSERT_EQ(vkEndCommandBuffer(commands), VK_SUCCESS);
        VkSubmitInfo submit = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
        submit.commandBufferCount = 1;
        submit.pCommandBuffers = &commands;
        {
            std::lock_guard<std::mutex> lock(application.queue_lock);
            ASSERT_EQ(vkQueueSubmit(application.queue, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
            ASSERT_EQ(vkQueueWaitIdle(application.queue), VK_SUCCESS);
        }
        vkDestroyCommandPool(application.device, pool, nullptr);
    }
    void wrap(Buffer<int32_t, 1> &with) {
        const halide_device_interface_t *interface = halide_vulkan_device_interface();
        ASSERT_EQ(interface->wrap_native(&application, with, (uint64_t)buffer, interface), 0) << last_error;
        EXPECT_EQ(halide_vulkan_get_vk_buffer(&application, with), (uintptr_t)buffer);
    }
    void detach(Buffer<int32_t, 1> &with) {
        ASSERT_EQ(halide_vulkan_device_interface()->detach_native(&application, with), 0) << last_error;
        EXPECT_EQ(with.raw_buffer()->device, 0u);
    }
    void sync() { ASSERT_EQ(halide_device_sync_global(&application, halide_vulkan_device_interface()), 0); }
};

TEST_F(GpuAotContext, WrappedBuffers) {
    Application application;
    {
        OwnBuffer source(application, 4096), target(application, 4096);
        for (int round = 0; round < 3; round++) {
            Buffer<int32_t, 1> in(nullptr, 4096), out(nullptr, 4096);
            source.wrap(in);
            target.wrap(out);
            ASSERT_EQ(double_and_add(&application, in, 7 + round, out), 0) << last_error;
            target.sync();
            for (int i = 0; i < 4096; i++) ASSERT_EQ(target.mapped[i], i * 10 + 7 + round) << i;
            out.raw_buffer()->set_device_dirty(false);
            target.detach(out);
            source.detach(in);
        }
        // A crop of a wrapped buffer, and a free instead of a detach: the application's memory stays.
        Buffer<int32_t, 1> in(nullptr, 4096), out(nullptr, 4096);
        source.wrap(in);
        target.wrap(out);
        std::memset(target.mapped, 0, 4096 * 4);
        {
            halide_dimension_t shape[1] = {{100, 50, 1, 0}};
            Buffer<int32_t, 1> crop(nullptr, 1, shape);
            const halide_device_interface_t *interface = halide_vulkan_device_interface();
            ASSERT_EQ(interface->device_crop(&application, out, crop), 0) << last_error;
            ASSERT_EQ(double_and_add(&application, in, 1, crop), 0) << last_error;
            target.sync();
            ASSERT_EQ(interface->device_release_crop(&application, crop), 0);
            crop.raw_buffer()->set_device_dirty(false);
        }
        for (int i = 0; i < 4096; i++) ASSERT_EQ(target.mapped[i], i >= 100 && i < 150 ? i * 10 + 1 : 0) << i;
        ASSERT_EQ(halide_device_free(&application, out), 0) << last_error;
        ASSERT_EQ(halide_device_free(&application, in), 0) << last_error;
        target.mapped[0] = 1;  // still mapped, still alive
    }
    release(application);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

// The application fills its buffer by its own command, two halide_buffer_t wrap it at once, and a second buffer is
// wrapped while the first one's kernel is in flight. Detaching twice does no harm; wrapping what is wrapped is refused.
TEST_F(GpuAotContext, WrappedTwiceAndWhileInFlight) {
    const halide_device_interface_t *interface = halide_vulkan_device_interface();
    Application application;
    {
        OwnBuffer source(application, 4096), target(application, 4096), second(application, 4096);
        for (int round = 0; round < 5; round++) {
            source.fill_on_device((uint32_t)round * 3);
            Buffer<int32_t, 1> in(nullptr, 4096), again(nullptr, 4096), out(nullptr, 4096), next(nullptr, 4096);
            source.wrap(in);
            source.wrap(again);
            target.wrap(out);
            ASSERT_EQ(double_and_add(&application, in, 1, out), 0) << last_error;
            // Not waited for. The second one reads what the first one writes.
            second.wrap(next);
            ASSERT_EQ(double_and_add(&application, out, 7, next), 0) << last_error;
            ASSERT_EQ(double_and_add(&application, again, 2, out), 0) << last_error;
            target.sync();
            for (int i = 0; i < 4096; i++) {
                ASSERT_EQ(target.mapped[i], round * 6 + 2) << i;
                ASSERT_EQ(second.mapped[i], (round * 6 + 1) * 2 + 7) << i;
            }
            last_error.clear();
            EXPECT_NE(interface->wrap_native(&application, in, (uint64_t)second.buffer, interface), 0);
            EXPECT_NE(last_error, "");
            for (Buffer<int32_t, 1> *wrapped : {&in, &again, &out, &next}) {
                wrapped->raw_buffer()->set_device_dirty(false);
                ASSERT_EQ(interface->detach_native(&application, *wrapped), 0) << last_error;
                ASSERT_EQ(interface->detach_native(&application, *wrapped), 0) << last_error;
                EXPECT_EQ(wrapped->raw_buffer()->device, 0u);
            }
            source.fill_on_device(77);  // still the application's
            ASSERT_EQ(source.mapped[4095], 77);
        }
    }
    release(application);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

}  // namespace
