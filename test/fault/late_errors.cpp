// Errors that are found after the call that caused them: a kernel is launched, and only later does the driver refuse
// the submission that holds it.
//
// Promised: the call that finds it returns it; so does every later call that depends on what was lost, and no other; no
// buffer claims data it does not have; what is written anew is good again; free, release_crop, finalize and release say
// nothing and succeed.
//
// Commands are batched by count here, so a launch returns before anything is submitted.

#include "mock_devices.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

namespace fault {
namespace {

class FaultLateErrors : public MockDevices {
protected:
    void SetUp() override {
        MockDevices::SetUp();
        start("plain", {{"HL_VK_FLUSH", "count"}});
    }
    void TearDown() override {
        mock_clear();
        mock_completion(MOCK_AT_ONCE, 0);
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        EXPECT_EQ(said(), "");
        EXPECT_EQ(HostMemory::get().wrong_frees(), 0u);
        MockDevices::TearDown();
    }
    static std::string said() {
        std::string all;
        for (const std::string &one : messages()) all += "[" + one + "]";
        messages().clear();
        return all;
    }
    // The next submissions are refused, until mock_clear.
    static void refuse() { ASSERT_TRUE(mock_fail("vkQueueSubmit", -1, VK_ERROR_OUT_OF_HOST_MEMORY)); }
    static int sync() { return halide_device_sync_global(nullptr, vulkan()); }

    // A failed call, with one message that contains `part`.
    template<typename Call>
    static void fails(const char *part, Call call) {
        messages().clear();
        EXPECT_NE(call(), 0);
        // Halide's own halide_buffer_copy adds a line.
        size_t causes = 0;
        for (const std::string &one : messages())
            causes += one.find("Failure in halide_buffer_copy") == std::string::npos;
        EXPECT_EQ(causes, 1u) << part;
        const std::string all = said();
        EXPECT_EQ(all.find("Vulkan: "), all.rfind("Vulkan: ")) << "it says twice whose it is: " << all;
        EXPECT_NE(all.find(part), std::string::npos) << all;
    }
    template<typename Call>
    static void works(Call call) {
        messages().clear();
        EXPECT_EQ(call(), 0) << said();
        EXPECT_EQ(said(), "");
    }
    static int download(Ints &buffer) {
        buffer.set_host_dirty(false);
        buffer.set_device_dirty();
        const int code = buffer.copy_to_host();
        EXPECT_EQ(buffer.device_dirty(), code != 0) << "the buffer claims what it does not have";
        buffer.set_device_dirty(false);
        return code;
    }
    template<typename Value>
    static void holds(Ints &buffer, Value value) {
        works([&] { return download(buffer); });
        for (int i = buffer.min(0); i < buffer.min(0) + buffer.width(); i++) ASSERT_EQ(buffer(i), value(i)) << i;
    }
    static int put(Ints &buffer, int factor) {
        fill(buffer, factor);
        return buffer.copy_to_device(vulkan());
    }

    // A buffer on the device whose newest contents were lost by a launch that was refused later.
    void lose(Ints &in, Ints &out) {
        works([&] { return put(in, 3); });
        works([&] { return put(out, 1); });
        works([&] { return sync(); });
        works([&] { return line_kernel()(out, in, in.width(), 5); });
        out.set_device_dirty(false);
        refuse();
        fails("vkQueueSubmit failed", [&] { return sync(); });
        mock_clear();
    }

    std::vector<std::string> set;
};

TEST_F(FaultLateErrors, EveryLaterReaderIsTold) {
    Ints in(200), out(200), other(200);
    lose(in, out);
    works([&] { return other.device_malloc(vulkan()); });
    for (int i = 0; i < 2; i++) {
        fails("were lost", [&] { return download(out); });
        fails("were lost", [&] { return line_kernel()(other, out, 200, 1); });
        fails("were lost", [&] { return copy_on_device(out, other); });
        fails("were lost", [&] { return out.device_sync(); });
    }
}

TEST_F(FaultLateErrors, OthersAreNot) {
    Ints in(200), out(200), other(200);
    lose(in, out);
    works([&] { return sync(); });
    works([&] { return in.device_sync(); });
    works([&] { return other.device_malloc(vulkan()); });
    works([&] { return line_kernel()(other, in, 200, 4); });
    holds(other, [](int i) { return i * 3 + 4; });
    holds(in, [](int i) { return i * 3; });
}

TEST_F(FaultLateErrors, WhatIsWrittenAnewIsGood) {
    Ints in(200), out(200);
    lose(in, out);
    works([&] { return put(out, 2); });
    holds(out, [](int i) { return i * 2; });

    lose(in, out);
    works([&] { return line_kernel()(out, in, 200, 6); });
    holds(out, [](int i) { return i * 3 + 6; });

    lose(in, out);
    works([&] { return copy_on_device(in, out); });
    holds(out, [](int i) { return i * 3; });
}

// Written anew in part, the rest stays lost, and with it the whole.
TEST_F(FaultLateErrors, WhatIsWrittenInPartIsNot) {
    Ints in(200), out(200), some(50);
    works([&] { return put(some, 7); });
    for (int how = 0; how < 3; how++) {
        lose(in, out);
        {
            Ints part = out.cropped(0, 64, 50);
            part.raw_buffer()->dim[0].min = 0;
            if (how == 0) works([&] { return put(part, 9); });
            if (how == 1) works([&] { return line_kernel()(part, some, 50, 1); });
            if (how == 2) works([&] { return copy_on_device(some, part); });
            part.set_device_dirty(false);
        }
        fails("were lost", [&] { return download(out); });
    }
}

// An upload that was recorded, and whose submission is refused.
TEST_F(FaultLateErrors, UploadsAreLostToo) {
    Ints in(200), out(200);
    works([&] { return put(in, 3); });
    refuse();
    fails("vkQueueSubmit failed", [&] { return sync(); });
    mock_clear();
    works([&] { return out.device_malloc(vulkan()); });
    fails("were lost", [&] { return line_kernel()(out, in, 200, 1); });
    works([&] { return put(in, 4); });
    works([&] { return line_kernel()(out, in, 200, 1); });
    holds(out, [](int i) { return i * 4 + 1; });
}

// A crop was written: the buffer it is part of is lost, also after the crop is gone.
TEST_F(FaultLateErrors, ALostCropIsALostBase) {
    Ints in(50), base(200);
    works([&] { return put(in, 3); });
    works([&] { return put(base, 1); });
    works([&] { return sync(); });
    {
        Ints part = base.cropped(0, 64, 50);
        works([&] { return line_kernel()(part, in, 50, 1); });
        part.set_device_dirty(false);
    }
    refuse();
    fails("vkQueueSubmit failed", [&] { return sync(); });
    mock_clear();
    fails("were lost", [&] { return download(base); });
}

// A buffer is remembered as lost however many submissions are refused after it.
TEST_F(FaultLateErrors, ALossIsNotForgotten) {
    Ints in(200), out(200);
    lose(in, out);
    for (int i = 0; i < 100; i++) {
        Ints a(10);
        works([&] { return put(a, 1); });
        refuse();
        fails("vkQueueSubmit failed", [&] { return sync(); });
        mock_clear();
    }
    fails("were lost", [&] { return download(out); });
}

// Memory of a lost buffer, given out again, is not lost.
// Nor where the submissions that are refused meanwhile are many, and each only fills a new buffer.
TEST_F(FaultLateErrors, ALossIsNotForgottenOverFills) {
    start("plain", {{"HL_VK_FLUSH", "always"}, {"HL_VK_ZERO_FILL", "1"}});
    Ints in(200), out(200);
    works([&] { return put(in, 3); });
    works([&] { return put(out, 1); });
    refuse();
    fails("vkQueueSubmit failed", [&] { return line_kernel()(out, in, 200, 5); });
    for (int i = 0; i < 40; i++) {
        Ints fresh(10);
        fails("vkQueueSubmit failed", [&] { return fresh.device_malloc(vulkan()); });
    }
    mock_clear();
    fails("were lost", [&] { return download(out); });
}

TEST_F(FaultLateErrors, ANewBufferInOldMemoryIsNotLost) {
    Ints in(200);
    {
        Ints out(200);
        lose(in, out);
    }
    Ints out(200);
    works([&] { return out.device_malloc(vulkan()); });
    works([&] { return line_kernel()(out, in, 200, 1); });
    holds(out, [](int i) { return i * 3 + 1; });
}

// The thread of ours submits for a caller that went quiet. The next sync tells, once; readers are told as ever.
TEST_F(FaultLateErrors, FoundByTheThreadOfOurs) {
    start("plain", {});
    mock_completion(MOCK_AFTER_POLLS, 1000);
    Ints in(200), out(200);
    works([&] { return put(in, 3); });
    works([&] { return out.device_malloc(vulkan()); });
    works([&] { return sync(); });
    const uint64_t before = mock_failed();
    refuse();
    // In one batch or several: some are refused at once, which their launch tells.
    int refused = 0;
    for (int i = 0; i < 8; i++) refused += line_kernel()(out, in, 200, i) != 0;
    out.set_device_dirty(false);
    for (int i = 0; i < 2000 && mock_failed() == before; i++) usleep(1000);
    EXPECT_GT(mock_failed(), before) << "nobody submitted";
    usleep(20000);
    mock_clear();
    said();
    if (refused < 8) fails("vkQueueSubmit failed", [&] { return sync(); });
    works([&] { return sync(); });
    fails("were lost", [&] { return download(out); });
}

// A wait that fails says nothing about the work: asked again, the results are there.
TEST_F(FaultLateErrors, AFailedWaitLosesNothing) {
    for (const char *way : {"fence", "timeline"}) {
        const char *call = std::string(way) == "fence" ? "vkWaitForFences" : "vkWaitSemaphores";
        start("plain", {{"HL_VK_FLUSH", "count"}, {"HL_VK_SPIN", "0"}, {"HL_VK_SYNC", way}});
        mock_completion(MOCK_AFTER_POLLS, 1000);
        Ints in(200), out(200);
        works([&] { return put(in, 3); });
        works([&] { return out.device_malloc(vulkan()); });
        works([&] { return line_kernel()(out, in, 200, 5); });
        mock_fail(call, 1, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        fails(call, [&] { return sync(); });
        mock_fail(call, 1, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        fails(call, [&] { return download(out); });
        mock_clear();
        holds(out, [](int i) { return i * 3 + 5; });
    }
}

// ---- A lost device.

TEST_F(FaultLateErrors, TheFirstCauseOfALossIsTold) {
    Ints in(200), out(200);
    works([&] { return put(in, 3); });
    works([&] { return out.device_malloc(vulkan()); });
    works([&] { return line_kernel()(out, in, 200, 5); });
    mock_lose(1, 0);
    fails("vkQueueSubmit failed with VK_ERROR_DEVICE_LOST", [&] { return sync(); });
    mock_clear();
    mock_reset();
    for (int i = 0; i < 2; i++) {
        fails("lost in vkQueueSubmit", [&] { return sync(); });
        fails("lost in vkQueueSubmit", [&] { return download(out); });
        fails("lost in vkQueueSubmit", [&] { return line_kernel()(out, in, 200, 5); });
        fails("lost in vkQueueSubmit", [&] { return put(in, 1); });
        fails("vkQueueSubmit", [&] { return copy_on_device(in, out); });
        Ints fresh(10);
        fails("lost in vkQueueSubmit", [&] { return fresh.device_malloc(vulkan()); });
    }
    in.set_host_dirty(false);
    EXPECT_EQ(mock_count_prefix("vk"), 0u);
    // After a release: old buffers are gone but can be freed, new ones work.
    EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
    EXPECT_EQ(said(), "");
    fails("released", [&] { return download(out); });
    works([&] { return in.device_free(); });
    works([&] { return out.device_free(); });
    Trial run;
    small_round_trip(run);
    EXPECT_TRUE(run.all_right()) << run.said();
}

// The 50th submission loses the device. Who is told, the call that finds it and each later one, is told which kernels
// ran last, the newest first: one of them is the likeliest cause.
TEST_F(FaultLateErrors, ALossNamesTheLastKernels) {
    for (const bool in_flight : {false, true}) {
        Ints in(200), out(200);
        const std::unique_ptr<Kernel> other = new_kernel();
        const std::string names = "(last kernels: " + other->name + ", _kernel_line)";
        works([&] { return put(in, 3); });
        works([&] { return out.device_malloc(vulkan()); });
        works([&] { return sync(); });
        mock_lose(50, in_flight);
        for (int i = 1; i < 50; i++) {
            works([&] { return line_kernel()(out, in, 200, i); });
            works([&] { return sync(); });
        }
        works([&] { return line_kernel()(out, in, 200, 50); });
        works([&] { return (*other)(out, in, 200, 51); });
        messages().clear();
        EXPECT_EQ(sync(), halide_error_code_gpu_device_error);
        const std::string first = said();
        EXPECT_NE(first.find("VK_ERROR_DEVICE_LOST"), std::string::npos) << first;
        EXPECT_NE(first.find(names), std::string::npos) << first;
        fails(names.c_str(), [&] { return download(out); });
        fails(names.c_str(), [&] { return line_kernel()(out, in, 200, 5); });
        mock_clear();
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
        works([&] { return in.device_free(); });
        works([&] { return out.device_free(); });
        Trial run;
        small_round_trip(run);
        EXPECT_TRUE(run.all_right()) << run.said();
    }
}

// Some drivers say of a lost device that its timeline has come to the end of all values, and that waits for it succeed.
// What was in flight is lost all the same, and nobody may take it for done.
TEST_F(FaultLateErrors, ALossThatTheTimelineHides) {
    for (const char *spin : {"0", "1"}) {
        start("plain", {{"HL_VK_FLUSH", "count"}, {"HL_VK_SPIN", spin}});
        Ints in(200), out(200);
        works([&] { return put(in, 3); });
        works([&] { return out.device_malloc(vulkan()); });
        works([&] { return sync(); });
        mock_lost_says_done();
        mock_lose(1, 1);
        works([&] { return line_kernel()(out, in, 200, 5); });
        fails("VK_ERROR_DEVICE_LOST", [&] { return sync(); });
        fails("lost in vk", [&] { return download(out); });
        fails("lost in vk", [&] { return line_kernel()(out, in, 200, 5); });
    }
}

// Destructors call these, with no user context, and must not meet an error.
TEST_F(FaultLateErrors, FreesAreSilent) {
    for (const bool reuse : {true, false}) {
        for (const bool device_is_lost : {false, true}) {
            halide_reuse_device_allocations(nullptr, reuse);
            Ints in(200), out(200);
            works([&] { return put(in, 3); });
            works([&] { return out.device_malloc(vulkan()); });
            works([&] { return sync(); });
            halide_buffer_t crop = {};
            halide_dimension_t dim = {64, 50, 1, 0};
            crop.type = halide_type_of<int32_t>();
            crop.dimensions = 1;
            crop.dim = &dim;
            works([&] { return vulkan()->device_crop(nullptr, out, &crop); });
            works([&] { return line_kernel().initialize(); });
            works([&] { return line_kernel().run(out, in, 200, 5); });
            out.set_device_dirty(false);
            if (device_is_lost)
                mock_lose(1, 0);
            else
                refuse();
            EXPECT_EQ(halide_device_release_crop(nullptr, &crop), 0);
            EXPECT_EQ(out.device_free(), 0);
            EXPECT_EQ(in.device_free(), 0);
            line_kernel().finalize();
            EXPECT_EQ(halide_vulkan_release_unused_device_allocations(nullptr), 0);
            EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
            EXPECT_EQ(said(), "") << "reuse " << reuse << ", lost " << device_is_lost;
            mock_clear();
        }
    }
    halide_reuse_device_allocations(nullptr, true);
}

}  // namespace
}  // namespace fault
