// An application's context that changes: another queue of the same VkDevice, then a queue of another family, and back.
//
// The application overrides halide_vulkan_acquire_context and hands over what it likes. Work on the queue that is left
// must be done before any on the new one begins, the queue that was left is not touched again, and command pools belong
// to a family. The mock's H200 has families that compute with and without graphics, with several queues each; it
// notices a command buffer on a queue of another family, and whatever is reset or destroyed while it is in use.

#include "scenarios.h"
#include "scratch.h"

#include "../mock/mock_app.h"

namespace {

// What the hook hands over next.
struct Application {
    MockApp *app = nullptr;
    uint32_t family = 0, index = 0;
    int acquired = 0, released = 0;
    int vanishes_at = 0;  // from this acquire on there is no context any more; 0: it stays
} application;

}  // namespace

extern "C" int halide_vulkan_acquire_context(void *, halide_vulkan_memory_allocator **allocator, VkInstance *instance,
                                             VkDevice *device, VkPhysicalDevice *physical, VkQueue *queue,
                                             uint32_t *family, VkDebugUtilsMessengerEXT *messenger, bool) {
    application.acquired++;
    *allocator = nullptr;
    *messenger = VK_NULL_HANDLE;
    const bool gone = application.vanishes_at && application.acquired >= application.vanishes_at;
    if (!application.app || gone) return halide_error_code_device_interface_no_device;
    *instance = application.app->instance;
    *device = application.app->device;
    *physical = application.app->physical;
    *queue = application.app->queue(application.family, application.index);
    *family = application.family;
    return 0;
}
extern "C" int halide_vulkan_release_context(void *, VkInstance, VkDevice, VkQueue, VkDebugUtilsMessengerEXT) {
    application.released++;
    return 0;
}

extern "C" {
void halide_vulkan_set_trace_file(const char *path);
int halide_vulkan_wrap_vk_buffer(void *user_context, halide_buffer_t *buffer, uint64_t handle);
int halide_vulkan_detach_vk_buffer(void *user_context, halide_buffer_t *buffer);
}

namespace fault {
namespace {

class FaultContext : public ::testing::Test {
protected:
    void SetUp() override {
        register_kernels();
        halide_set_error_handler(keep_message);
        signal(SIGALRM, on_alarm);
        mock_clear();
        mock_forgive();
        ASSERT_TRUE(mock_profile("h200"));
        mock_completion(MOCK_AFTER_POLLS, 1000);
        app = std::make_unique<MockApp>();
        ASSERT_NE(app->device, nullptr);
        application = {};
        application.app = app.get();
        before = mock_live("");
        use(2, 0);
    }
    void TearDown() override {
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        EXPECT_EQ(mock_live(""), before) << "the runtime left something";
        EXPECT_EQ(application.acquired, application.released);
        application.app = nullptr;
        app.reset();
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
        EXPECT_EQ(mock_live(""), 0);
        mock_completion(MOCK_AT_ONCE, 0);
    }
    static void use(uint32_t family, uint32_t index) {
        application.family = family;
        application.index = index;
    }
    static void is_right(Trial &run) {
        EXPECT_EQ(run.check({}, 0), "");
        EXPECT_FALSE(run.any_failed()) << run.said();
    }

    std::unique_ptr<MockApp> app;
    int64_t before = 0;
};

// A chain of launches, each on another queue than the one before: with each change the work in flight is waited for.
TEST_F(FaultContext, QueuesAndFamiliesInTurn) {
    const uint32_t places[][2] = {{2, 0}, {2, 1}, {0, 0}, {0, 3}, {2, 0}, {0, 0}, {2, 7}};
    Trial run;
    {
        Ints a(300), b(300);
        upload(run, a, 2);
        allocate(run, b);
        for (int i = 0; i < 28; i++) {
            use(places[i % 7][0], places[i % 7][1]);
            launch(run, i % 2 ? a : b, i % 2 ? b : a, 1);
        }
        run.expect_contents("download", a, [](int i) { return i * 2 + 28; });
    }
    is_right(run);
}

// Each queue finishes only when it is told to: if the new queue's work did not wait for the old one's, it would run
// first and be wrong.
TEST_F(FaultContext, TheNewQueueWaitsForTheOld) {
    Trial run;
    {
        Ints a(100), b(100), c(100);
        upload(run, a, 2);
        allocate(run, b);
        allocate(run, c);
        launch(run, b, a, 1);
        EXPECT_GE(mock_pending(), 1u) << "nothing is in flight, so nothing is tested";
        use(0, 0);
        launch(run, c, b, 1);
        run.expect_contents("download", c, [](int i) { return i * 2 + 2; });
    }
    is_right(run);
}

// The application may look at its own memory where it mapped it, once a sync has returned: what kernels wrote there has
// to be made available to the host.
TEST_F(FaultContext, AWrappedBufferIsTheApplicationsToRead) {
    constexpr uint32_t kVisibleType = 3;
    MockAppBuffer theirs(*app, 4096, kVisibleType);
    ASSERT_NE(theirs.mapped, nullptr);
    Trial run;
    Ints in(100), out(100);
    upload(run, in, 2);
    run.step("wrap", [&] { return halide_vulkan_wrap_vk_buffer(nullptr, out, (uint64_t)theirs.buffer); });
    sync(run);
    mock_reset();
    launch(run, out, in, 5);
    sync(run);
    EXPECT_GE(mock_barriers(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                            VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT),
              1u);
    for (int i = 0; i < 100; i++) EXPECT_EQ(((const int32_t *)theirs.mapped)[i], i * 2 + 5);
    out.set_device_dirty(false);
    run.step("detach", [&] { return halide_vulkan_detach_vk_buffer(nullptr, out); });
    is_right(run);
}

// Another queue for a release, or for the free of a buffer that is in use.
TEST_F(FaultContext, ReleasedOnAnotherQueue) {
    for (int round = 0; round < 3; round++) {
        Trial run;
        {
            Ints a(100), b(100);
            upload(run, a, 2);
            allocate(run, b);
            launch(run, b, a, 1);
            use(round % 2 ? 2 : 0, (uint32_t)round);
            b.set_device_dirty(false);
        }
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        is_right(run);
    }
}

// The hook has no context to give any more in the middle of a release, and a wait fails: what the GPU uses stays until
// it is done.
TEST_F(FaultContext, AContextThatVanishesDuringARelease) {
    setenv("HL_VK_SPIN", "0", 1);  // so that the wait is the driver's
    Trial run;
    {
        Ints a(100), b(100);
        upload(run, a, 2);
        allocate(run, b);
        launch(run, b, a, 1);
        b.set_device_dirty(false);
        ASSERT_TRUE(mock_fail("vkWaitForFences", 1, VK_ERROR_OUT_OF_HOST_MEMORY));
        application.vanishes_at = application.acquired + 2;
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        EXPECT_EQ(mock_failed(), 1u) << "nothing failed, so nothing is tested";
        EXPECT_EQ(mock_live(""), before);
        application.vanishes_at = 0;
    }
    unsetenv("HL_VK_SPIN");
    mock_clear();
    messages().clear();
}

// With a trace, commands are timed only where the queue's family can.
TEST_F(FaultContext, ATracedContextOfAFamilyWithoutTimestamps) {
    EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
    application.app = nullptr;
    app.reset();
    ASSERT_TRUE(mock_profile("untimed"));
    app = std::make_unique<MockApp>();
    application.app = app.get();
    before = mock_live("");
    use(0, 0);
    halide_vulkan_set_trace_file((Scratch::folder() / "trace.json").c_str());
    Trial run;
    {
        Ints a(300), b(300);
        upload(run, a, 2);
        allocate(run, b);
        uint64_t timed[6] = {};
        for (int i = 0; i < 6; i++) {
            use(i % 2 ? 2 : 0, 0);
            mock_reset();
            launch(run, i % 2 ? a : b, i % 2 ? b : a, 1);
            timed[i] = mock_count("vkCmdWriteTimestamp");
        }
        for (int i = 1; i < 6; i++) EXPECT_EQ(timed[i] > 0, i % 2 == 0) << "launch " << i;
        run.expect_contents("download", a, [](int i) { return i * 2 + 6; });
    }
    is_right(run);
    halide_vulkan_set_trace_file("");
}

// The application has mapped what it wraps, and looks after a sync: what a kernel wrote there ends with a barrier to
// the host, beside the one behind work that is not ours.
TEST_F(FaultContext, WhatIsWrappedIsReadyForTheCpu) {
    constexpr uint32_t kHostMemory = 3;  // of the h200, visible, coherent and cached
    Trial run;
    {
        MockAppBuffer target(*app, 400, kHostMemory);
        Ints in(100), ours(100), out(nullptr, 100);
        upload(run, in, 3);
        allocate(run, ours);
        ASSERT_EQ(halide_vulkan_wrap_vk_buffer(nullptr, out, (uint64_t)target.buffer), 0);
        launch(run, out, in, 1);
        sync(run);
        for (Ints *to : {&ours, &out}) {
            mock_reset();
            launch(run, *to, in, 5);
            sync(run);
            EXPECT_EQ(mock_count("vkCmdPipelineBarrier"), to == &out ? 2u : 1u);
        }
        for (int i = 0; i < 100; i++) {
            int32_t value;
            memcpy(&value, target.mapped + 4 * i, 4);
            ASSERT_EQ(value, i * 3 + 5) << i;
        }
        EXPECT_EQ(halide_vulkan_detach_vk_buffer(nullptr, out), 0);
    }
    is_right(run);
}

// Whatever call fails during a change: the launch says so, the next one works, on the old queue or the new.
TEST_F(FaultContext, AChangeThatFails) {
    bool failed = true;
    int runs = 0;
    for (int nth = 1; failed && nth < 200; nth++) {
        for (const bool for_good : {false, true}) {
            alarm(300);
            use(2, 0);
            std::string wrong;
            {
                Ints a(100), b(100), c(100);
                Trial run;
                upload(run, a, 2);
                allocate(run, b);
                allocate(run, c);
                launch(run, b, a, 1);
                is_right(run);
                mock_clear();
                mock_fail_nth(nth, 0, for_good);
                use(0, 1);
                Trial changed;
                launch(changed, c, a, 5);
                failed = mock_failed() > 0;
                const std::string call = mock_failed_call();
                mock_clear();
                wrong = changed.check({"were lost", call + " failed with VK_"}, 0);
                EXPECT_EQ(wrong, "") << call << ", " << nth;
                c.set_device_dirty(false);
                for (const uint32_t family : {2u, 0u}) {
                    use(family, 0);
                    Trial again;
                    upload(again, a, 3);
                    launch(again, c, a, 7);
                    again.expect_contents("download", c, [](int i) { return i * 3 + 7; });
                    is_right(again);
                }
            }
            runs++;
            if (!failed) break;
        }
    }
    alarm(0);
    EXPECT_FALSE(failed) << "no end";
    EXPECT_GT(runs, 40) << "so many pools are made anew";
}

}  // namespace
}  // namespace fault
