// The mock driver is what other tests rest on, so it is tested itself: that it does what a test tells it to, and that
// it notices what an application does wrong. mock_app.h is the application.

#include "mock_app.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace {

class Mock : public ::testing::Test {
protected:
    void SetUp() override { start("plain"); }
    void TearDown() override {
        mock_clear();
        mock_completion(MOCK_AT_ONCE, 0);
    }
    static void start(const char *profile) {
        mock_clear();
        mock_forgive();
        mock_completion(MOCK_AT_ONCE, 0);
        ASSERT_TRUE(mock_profile(profile));
        mock_reset();
    }
    static void nothing_is_wrong() {
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
        EXPECT_EQ(mock_live(""), 0);
        EXPECT_EQ(mock_allocated_bytes(), 0u);
    }
    static void is_wrong(const char *call, const char *part) {
        EXPECT_GE(mock_wrong_uses(), 1u);
        EXPECT_EQ(std::string(mock_wrong_use()).find(call), 0u) << mock_wrong_use();
        EXPECT_NE(std::string(mock_wrong_use()).find(part), std::string::npos) << mock_wrong_use();
        mock_forgive();
    }
};

constexpr uint32_t kHost = 1;  // of "plain": a memory type that can be mapped

TEST_F(Mock, CountsLogsAndReports) {
    {
        MockApp app;
        EXPECT_EQ(mock_count("vkCreateDevice"), 1u);
        EXPECT_EQ(mock_count("vkNoSuchCall"), UINT64_MAX);
        EXPECT_EQ(mock_count_prefix("vkCreate"), 2u);
        EXPECT_STREQ(mock_logged(1, nullptr), "vkGetInstanceProcAddr");
        EXPECT_EQ(mock_logged(1000, nullptr), nullptr);
        EXPECT_EQ(mock_live("VkDevice"), 1);
        EXPECT_EQ(mock_live("VkNothing"), -1);
        mock_reset();
        EXPECT_EQ(mock_count_prefix("vk"), 0u);
    }
    nothing_is_wrong();
}

TEST_F(Mock, CopiesRunWhenTheirSubmissionFinishes) {
    {
        MockApp app;
        MockAppBuffer a(app, 100, kHost), b(app, 100, kHost);
        memset(a.mapped, 7, 100);
        const VkFence fence = app.fence();
        mock_completion(MOCK_BY_HAND, 0);
        MockAppCommands one(app);
        one.copy(a, b, 100);
        ASSERT_EQ(one.submit(app.queue(0), fence), VK_SUCCESS);
        EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_NOT_READY);
        EXPECT_EQ(app.vkWaitForFences(app.device, 1, &fence, VK_TRUE, 1000), VK_TIMEOUT);
        EXPECT_EQ(b.mapped[99], 0);
        a.mapped[99] = 9;  // too early, and seen: the copy has not run yet
        EXPECT_EQ(mock_pending(), 1u);
        EXPECT_EQ(mock_finish(0), 1u);
        EXPECT_EQ(b.mapped[0], 7);
        EXPECT_EQ(b.mapped[99], 9);
        EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_SUCCESS);
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, FencesSignalAfterPollsOrAtAWait) {
    {
        MockApp app;
        const VkFence fence = app.fence();
        MockAppCommands commands(app);
        mock_completion(MOCK_AFTER_POLLS, 3);
        ASSERT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        for (int i = 0; i < 3; i++) EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_NOT_READY) << i;
        EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_SUCCESS);
        ASSERT_EQ(app.vkResetFences(app.device, 1, &fence), VK_SUCCESS);
        ASSERT_EQ(app.vkResetCommandPool(app.device, commands.pool, 0), VK_SUCCESS);
        commands.begin();
        ASSERT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        EXPECT_EQ(app.vkWaitForFences(app.device, 1, &fence, VK_TRUE, UINT64_MAX), VK_SUCCESS);
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, AWaitBlocksUntilAnotherThreadFinishes) {
    {
        MockApp app;
        const VkFence fence = app.fence();
        MockAppCommands commands(app);
        mock_completion(MOCK_BY_HAND, 0);
        ASSERT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        std::atomic<bool> done{false};
        std::thread waiter([&] {
            EXPECT_EQ(app.vkWaitForFences(app.device, 1, &fence, VK_TRUE, UINT64_MAX), VK_SUCCESS);
            done = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(done);
        mock_finish(1);
        waiter.join();
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, TimelinesOrderQueues) {
    {
        MockApp app;
        MockAppBuffer a(app, 16, kHost), b(app, 16, kHost), c(app, 16, kHost);
        a.mapped[0] = 5;
        VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
        type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
        type.initialValue = 10;
        VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
        VkSemaphore timeline = VK_NULL_HANDLE;
        ASSERT_EQ(app.vkCreateSemaphore(app.device, &info, nullptr, &timeline), VK_SUCCESS);
        mock_completion(MOCK_BY_HAND, 0);
        const uint64_t value = 11;
        VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
        values.waitSemaphoreValueCount = values.signalSemaphoreValueCount = 1;
        values.pWaitSemaphoreValues = values.pSignalSemaphoreValues = &value;
        MockAppCommands second(app), first(app);
        second.copy(b, c, 16);
        first.copy(a, b, 16);
        // The waiter is submitted first and still runs last.
        values.signalSemaphoreValueCount = 0;
        ASSERT_EQ(second.submit(app.queue(0, 1), VK_NULL_HANDLE, &values, VK_NULL_HANDLE, timeline), VK_SUCCESS);
        EXPECT_EQ(mock_finish(0), 0u);
        values.waitSemaphoreValueCount = 0;
        values.signalSemaphoreValueCount = 1;
        ASSERT_EQ(first.submit(app.queue(0, 0), VK_NULL_HANDLE, &values, timeline), VK_SUCCESS);
        EXPECT_EQ(mock_finish(0), 2u);
        EXPECT_EQ(c.mapped[0], 5);
        uint64_t now = 0;
        ASSERT_EQ(app.vkGetSemaphoreCounterValue(app.device, timeline, &now), VK_SUCCESS);
        EXPECT_EQ(now, 11u);
        app.vkDestroySemaphore(app.device, timeline, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, FailsTheNthCallOfAName) {
    {
        MockApp app;
        EXPECT_FALSE(mock_fail("vkNoSuchCall", 1, VK_ERROR_OUT_OF_HOST_MEMORY));
        EXPECT_FALSE(mock_fail("vkDestroyBuffer", 1, VK_ERROR_OUT_OF_HOST_MEMORY));
        ASSERT_TRUE(mock_fail("vkCreateFence", 2, VK_ERROR_OUT_OF_HOST_MEMORY));
        VkFenceCreateInfo info = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
        VkFence a = VK_NULL_HANDLE, b = VK_NULL_HANDLE;
        EXPECT_EQ(app.vkCreateFence(app.device, &info, nullptr, &a), VK_SUCCESS);
        EXPECT_EQ(app.vkCreateFence(app.device, &info, nullptr, &b), VK_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_NE(b, VK_NULL_HANDLE) << "what a failed call leaves there is undefined, and no handle";
        EXPECT_EQ(mock_live("VkFence"), 1);
        EXPECT_EQ(mock_failed(), 1u);
        EXPECT_STREQ(mock_failed_call(), "vkCreateFence");
        EXPECT_EQ(mock_failed_result(), VK_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(mock_failed_choices(), 2);
        EXPECT_GE(mock_ever_failed("vkCreateFence"), 1);
        EXPECT_EQ(mock_ever_failed("vkDestroyFence"), -1);
        EXPECT_EQ(app.vkCreateFence(app.device, &info, nullptr, &b), VK_SUCCESS);
        app.vkDestroyFence(app.device, a, nullptr);
        app.vkDestroyFence(app.device, b, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, FailsTheNthOfAllCalls) {
    {
        MockApp app;
        MockAppCommands commands(app);
        const VkFence fence = app.fence();
        mock_fail_nth(2, 2, 1);  // end, submit
        EXPECT_EQ(commands.submit(app.queue(0), fence), VK_ERROR_DEVICE_LOST);
        // For good: the device is lost, and says so wherever it can.
        EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_ERROR_DEVICE_LOST);
        EXPECT_EQ(app.vkWaitForFences(app.device, 1, &fence, VK_TRUE, UINT64_MAX), VK_ERROR_DEVICE_LOST);
        mock_clear();
        EXPECT_EQ(app.vkDeviceWaitIdle(app.device), VK_ERROR_DEVICE_LOST);
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, LosesWorkInFlight) {
    {
        MockApp app;
        const VkFence fence = app.fence();
        MockAppCommands commands(app);
        mock_lose(1, 1);
        EXPECT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        EXPECT_EQ(app.vkWaitForFences(app.device, 1, &fence, VK_TRUE, UINT64_MAX), VK_ERROR_DEVICE_LOST);
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
}

// ---- Faults of an application.

TEST_F(Mock, NoticesDoubleDestruction) {
    MockApp app;
    const VkFence fence = app.fence();
    app.vkDestroyFence(app.device, fence, nullptr);
    app.vkDestroyFence(app.device, fence, nullptr);
    is_wrong("vkDestroyFence", "destroyed");
    EXPECT_EQ(mock_live("VkFence"), 0);
}

TEST_F(Mock, NoticesUseAfterDestruction) {
    MockApp app;
    const VkFence fence = app.fence();
    app.vkDestroyFence(app.device, fence, nullptr);
    const VkFence another = app.fence();  // a new one never gets the old handle
    app.vkGetFenceStatus(app.device, fence);
    is_wrong("vkGetFenceStatus", "destroyed");
    app.vkDestroyFence(app.device, another, nullptr);
}

TEST_F(Mock, NoticesLeaks) {
    {
        MockApp app;
        app.fence();
        EXPECT_EQ(mock_live("VkFence"), 1);
    }
    is_wrong("vkDestroyDevice", "while it has a VkFence");
    nothing_is_wrong();
}

TEST_F(Mock, NoticesObjectsOfAnotherDevice) {
    MockApp app, other;
    const VkFence fence = app.fence();
    app.vkResetFences(other.device, 1, &fence);
    EXPECT_EQ(mock_wrong_uses(), 0u);  // arrays are looked up, not compared
    app.vkGetFenceStatus(other.device, fence);
    is_wrong("vkGetFenceStatus", "another device");
    app.vkDestroyFence(app.device, fence, nullptr);
}

TEST_F(Mock, NoticesOtherAllocationCallbacks) {
    MockApp app;
    const VkAllocationCallbacks callbacks = {};
    const VkFence fence = app.fence();
    app.vkDestroyFence(app.device, fence, &callbacks);
    is_wrong("vkDestroyFence", "callbacks");
}

TEST_F(Mock, NoticesWhatPendingWorkUses) {
    MockApp app;
    mock_completion(MOCK_BY_HAND, 0);
    const VkFence fence = app.fence();
    MockAppCommands commands(app);
    {
        MockAppBuffer a(app, 16, kHost), b(app, 16, kHost);
        commands.copy(a, b, 16);
        ASSERT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        app.vkResetFences(app.device, 1, &fence);
        is_wrong("vkResetFences", "not done");
        app.vkResetCommandPool(app.device, commands.pool, 0);
        is_wrong("vkResetCommandPool", "not done");
        mock_finish(0);
        mock_forgive();
    }
    app.vkDestroyFence(app.device, fence, nullptr);
    EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
}

TEST_F(Mock, NoticesADestroyedBufferInARecordedCommand) {
    MockApp app;
    MockAppCommands commands(app);
    {
        MockAppBuffer a(app, 16, kHost), b(app, 16, kHost);
        commands.copy(a, b, 16);
    }
    commands.submit(app.queue(0));
    is_wrong("vkQueueSubmit", "between recording and submission");
}

TEST_F(Mock, NoticesAQueueOfAnotherFamily) {
    start("h200");
    MockApp app;
    MockAppCommands commands(app, 0);
    commands.submit(app.queue(2));
    is_wrong("vkQueueSubmit", "another queue family");
}

TEST_F(Mock, NoticesRangesBehindABuffer) {
    MockApp app;
    MockAppBuffer a(app, 16, kHost), b(app, 8, kHost);
    MockAppCommands commands(app);
    commands.copy(a, b, 16);
    is_wrong("vkCmdCopyBuffer", "behind");
}

// ---- Pipeline caches.

std::string data_of(MockApp &app, VkPipelineCache cache) {
    size_t size = 0;
    app.vkGetPipelineCacheData(app.device, cache, &size, nullptr);
    std::string data(size, 0);
    app.vkGetPipelineCacheData(app.device, cache, &size, data.data());
    return data;
}
VkPipelineCache cache_of(MockApp &app, const std::string &data) {
    VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.initialDataSize = data.size();
    info.pInitialData = data.data();
    VkPipelineCache cache = VK_NULL_HANDLE;
    app.vkCreatePipelineCache(app.device, &info, nullptr, &cache);
    return cache;
}
// As the mock makes an entry; `pipeline` stands for a hash.
std::string with_entry(std::string data, uint64_t pipeline) {
    for (uint64_t word : {pipeline, ~pipeline}) data.append((const char *)&word, 8);
    return data;
}

TEST_F(Mock, CachesAreGivenOutAndMerged) {
    {
        MockApp app;
        const VkPipelineCache none = cache_of(app, "");
        const std::string empty = data_of(app, none);
        EXPECT_EQ(empty.size(), 32u);
        const VkPipelineCache one = cache_of(app, with_entry(empty, 1)), two = cache_of(app, with_entry(empty, 2));
        EXPECT_EQ(app.vkMergePipelineCaches(app.device, one, 1, &two), VK_SUCCESS);
        EXPECT_EQ(data_of(app, one), with_entry(with_entry(empty, 1), 2));
        size_t room = 40;
        char part[40];
        EXPECT_EQ(app.vkGetPipelineCacheData(app.device, one, &room, part), VK_INCOMPLETE);
        EXPECT_EQ(room, 0u);
        for (VkPipelineCache cache : {none, one, two}) app.vkDestroyPipelineCache(app.device, cache, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, NoticesACacheOfDamagedBytes) {
    MockApp app;
    const VkPipelineCache empty = cache_of(app, "");
    const std::string good = with_entry(data_of(app, empty), 1);
    app.vkDestroyPipelineCache(app.device, empty, nullptr);
    EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
    for (size_t at = 0; at < good.size(); at++) {
        std::string damaged = good;
        damaged[at] ^= 4;
        app.vkDestroyPipelineCache(app.device, cache_of(app, damaged), nullptr);
        is_wrong("vkCreatePipelineCache", "never gave out");
        app.vkDestroyPipelineCache(app.device, cache_of(app, good.substr(0, at)), nullptr);
        if (at != 0 && at != 32) is_wrong("vkCreatePipelineCache", "never gave out");
    }
}

// ---- Devices.

TEST_F(Mock, MemoryThatIsNotCoherentNeedsFlushes) {
    start("mobile");
    {
        MockApp app;
        MockAppBuffer a(app, 256, 2), b(app, 256, 2);
        memset(a.mapped, 3, 256);
        VkMappedMemoryRange range = {VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE, nullptr, a.memory, 0, 256};
        MockAppCommands commands(app);
        commands.copy(a, b, 256);
        app.vkFlushMappedMemoryRanges(app.device, 1, &range);
        memset(a.mapped, 4, 256);  // after the flush: the device does not see it
        ASSERT_EQ(commands.submit(app.queue(0)), VK_SUCCESS);
        EXPECT_EQ(b.mapped[0], 0xA5);
        range.memory = b.memory;
        app.vkInvalidateMappedMemoryRanges(app.device, 1, &range);
        EXPECT_EQ(b.mapped[0], 3);
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
        range.offset = 4;
        app.vkInvalidateMappedMemoryRanges(app.device, 1, &range);
        is_wrong("vkInvalidateMappedMemoryRanges", "nonCoherentAtomSize");
    }
    nothing_is_wrong();
}

TEST_F(Mock, AWindowIsFullAfter256MiB) {
    start("window");
    {
        MockApp app;
        VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, 200 << 20, 3};
        VkDeviceMemory one = VK_NULL_HANDLE, two = VK_NULL_HANDLE;
        EXPECT_EQ(app.vkAllocateMemory(app.device, &info, nullptr, &one), VK_SUCCESS);
        EXPECT_EQ(app.vkAllocateMemory(app.device, &info, nullptr, &two), VK_ERROR_OUT_OF_DEVICE_MEMORY);
        app.vkFreeMemory(app.device, one, nullptr);
        EXPECT_EQ(app.vkAllocateMemory(app.device, &info, nullptr, &two), VK_SUCCESS);
        app.vkFreeMemory(app.device, two, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, Vulkan10HasNothingNewer) {
    start("vulkan10");
    {
        MockApp app;
        EXPECT_EQ(app.vkGetInstanceProcAddr(nullptr, "vkEnumerateInstanceVersion"), nullptr);
        EXPECT_EQ(app.vkGetPhysicalDeviceFeatures2, nullptr);
        EXPECT_EQ(app.vkGetPhysicalDeviceFeatures2KHR, nullptr);
        EXPECT_EQ(app.vkCreateDebugUtilsMessengerEXT, nullptr);
        EXPECT_EQ(app.vkWaitSemaphores, nullptr);
        EXPECT_NE(app.device, nullptr);
    }
    nothing_is_wrong();
}

TEST_F(Mock, PortabilityIsAskedFor) {
    start("moltenvk");
    MockApp app(false);
    EXPECT_EQ(app.physical, nullptr);  // it did not ask
}

TEST_F(Mock, EveryProfileMakesADevice) {
    for (const char *name :
         {"plain", "vulkan10", "mobile", "adreno", "v3d", "window", "small", "unified", "h200", "null"}) {
        start(name);
        MockApp app;
        EXPECT_NE(app.device, nullptr) << name;
    }
    start("plain");
}

TEST_F(Mock, TheNullProfileDoesNothing) {
    start("null");
    {
        MockApp app;
        const VkFence fence = app.fence();
        mock_completion(MOCK_BY_HAND, 0);
        MockAppCommands commands(app);
        EXPECT_EQ(commands.submit(app.queue(0), fence), VK_SUCCESS);
        EXPECT_EQ(app.vkGetFenceStatus(app.device, fence), VK_SUCCESS);
        EXPECT_EQ(mock_pending(), 0u);
        EXPECT_EQ(mock_count("vkQueueSubmit"), 1u);
        app.vkDestroyFence(app.device, fence, nullptr);
    }
    nothing_is_wrong();
    start("plain");
}

}  // namespace
