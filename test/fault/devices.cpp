// The runtime on devices we do not own: each mock profile computes, copies and gives everything back, and behaviour
// that only shows on a device of some kind is right there: a full window of visible memory, memory that is short, a
// timeline that is promised and cannot be made, waits on a GPU that is slow or fast, one that runs for hours.
//
// Several of these are reports of users of Halide and of other Vulkan programs; each test's comment tells what was
// seen.

#include "mock_devices.h"

#include <ctime>

#include <sched.h>
#include <sys/resource.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

extern "C" int halide_vulkan_compute_capability(void *user_context, int *major, int *minor);

namespace fault {
namespace {

// A small device was told to have no Vulkan, or failed where extensions were missing: everything from Vulkan 1.0
// without an extension up must compute, whatever the alignments and kinds of memory are.
TEST_F(MockDevices, EachComputes) {
    for (const char *profile : {"plain", "vulkan10", "old", "mobile", "adreno", "v3d", "moltenvk", "window", "unified",
                                "tight", "few_sets", "h200"}) {
        for (const uint32_t polls : {0u, 3u}) {
            start(profile);
            mock_completion(polls ? MOCK_AFTER_POLLS : MOCK_AT_ONCE, polls);
            Trial trial;
            for (int n : {1, 15, 16, 17, 63, 100, 1000, 4096}) round_trip(trial, n, n);
            batch(trial);
            large_copies(trial);
            device_copies(trial);
            overlapping_copy(trial);
            strided_copies(trial);
            crops(trial);
            bounced_crop(trial);
            free_in_flight(trial);
            is_right(trial);
            EXPECT_EQ(mock_wrong_uses(), 0u) << profile << ": " << mock_wrong_use();
        }
    }
}

// The version is the device's, not the loader's.
TEST_F(MockDevices, CapabilityIsThatOfTheDevice) {
    const struct {
        const char *profile;
        int major, minor;
    } expected[] = {{"vulkan10", 1, 0}, {"mobile", 1, 1}, {"v3d", 1, 2}, {"h200", 1, 3}};
    for (const auto &e : expected) {
        start(e.profile);
        int major = -1, minor = -1;
        EXPECT_EQ(halide_vulkan_compute_capability(nullptr, &major, &minor), 0);
        EXPECT_EQ(major, e.major) << e.profile;
        EXPECT_EQ(minor, e.minor) << e.profile;
        EXPECT_EQ(mock_live(""), 0) << "asking leaves something behind";
    }
}

// Memory that is both the device's and visible may be a window of 256 MiB. Preferring it failed when it was full.
TEST_F(MockDevices, AFullWindowIsNoFailure) {
    start("window");
    Trial trial;
    {
        std::vector<Ints> buffers;
        for (int i = 0; i < 40; i++) {
            buffers.emplace_back(8 << 20);  // 32 MiB, 1.25 GiB in all
            allocate(trial, buffers.back());
            Ints part = buffers.back().cropped(0, 0, 100), in(100);
            upload(trial, in, 3);
            trial.step("launch", [&] { return line_kernel()(part, in, 100, i); });
            part.set_device_dirty(false);
        }
        for (int i = 0; i < 40; i++) {
            Ints part = buffers[i].cropped(0, 0, 100);
            trial.expect_contents("download", part, [&](int k) { return k * 3 + i; });
        }
    }
    is_right(trial);
}

// Buffers that are freed while their kernels run come back: in all far more is used than the device has.
TEST_F(MockDevices, MoreIsFreedThanThereIs) {
    start("small", {{"HL_VK_FLUSH", "count"}});
    mock_completion(MOCK_AFTER_POLLS, 1000000);
    Trial trial;
    Ints in(100), last(100);
    upload(trial, in, 3);
    allocate(trial, last);
    for (int i = 0; i < 30; i++) {
        Ints a(4 << 20);  // 16 of 64 MiB
        if (!allocate(trial, a)) break;
        Ints part = a.cropped(0, 0, 100);
        trial.step("launch", [&] { return line_kernel()(part, in, 100, i); });
        trial.step("device copy", [&] { return copy_on_device(part, last); });
        part.set_device_dirty(false);
    }
    trial.expect_contents("download", last, [](int i) { return i * 3 + 29; });
    is_right(trial);
}

// A buffer freed right after its copy was recorded: 10,000 rounds, with memory flat and right results.
TEST_F(MockDevices, FreedAfterARecordedCopy) {
    start("plain");
    mock_completion(MOCK_AFTER_POLLS, 3);
    Trial trial;
    Ints b(100);
    allocate(trial, b);
    uint64_t bytes = 0;
    int64_t objects = 0;
    for (int i = 0; i < 10000; i++) {
        {
            Ints a(100);
            fill(a, 1);
            a.data()[0] = i;
            trial.step("upload", [&] { return a.copy_to_device(vulkan()); });
            trial.step("device copy", [&] { return copy_on_device(a, b); });
        }
        if (i % 500 == 0) trial.expect_contents("download", b, [&](int k) { return k ? k : i; });
        if (i == 100) {
            bytes = mock_allocated_bytes();
            objects = mock_live("");
        }
    }
    EXPECT_EQ(mock_allocated_bytes(), bytes);
    EXPECT_EQ(mock_live(""), objects);
    is_right(trial);
}

// 20,000 launches without a sync: command buffers, descriptors and scalars are used over again.
TEST_F(MockDevices, TwentyThousandLaunches) {
    start("plain");
    mock_completion(MOCK_AFTER_POLLS, 5);
    Trial trial;
    Ints a(50), b(50);
    upload(trial, a, 2);
    allocate(trial, b);
    for (int i = 0; i < 100; i++) launch(trial, i % 2 ? a : b, i % 2 ? b : a, 1);
    const uint64_t bytes = mock_allocated_bytes();
    const int64_t objects = mock_live("");
    for (int i = 100; i < 20000; i++) launch(trial, i % 2 ? a : b, i % 2 ? b : a, 1);
    EXPECT_EQ(mock_allocated_bytes(), bytes);
    EXPECT_EQ(mock_live(""), objects);
    trial.expect_contents("download", a, [](int i) { return i * 2 + 20000; });
    is_right(trial);
}

// Pools whose counts a driver reads in its own way run out, and such that free single sets fragment. Either answer, at
// whatever call, costs nothing but shorter batches.
TEST_F(MockDevices, RefusedDescriptorSets) {
    for (const VkResult result : {VK_ERROR_OUT_OF_POOL_MEMORY, VK_ERROR_FRAGMENTED_POOL}) {
        for (const int nth : {1, 7, 16}) {
            start("plain", {{"HL_VK_FLUSH", "count"}});
            mock_completion(MOCK_AFTER_POLLS, 3);
            ASSERT_TRUE(mock_fail("vkAllocateDescriptorSets", nth, result));
            Trial trial;
            for (int i = 0; i < 10; i++) batch(trial);
            EXPECT_EQ(mock_failed(), 1u);
            EXPECT_EQ(trial.check({}, 0), "");
            EXPECT_FALSE(trial.any_failed()) << trial.said();
        }
    }
}

// The least that a driver may give: one set for each submission. A copy that takes two dispatches needs two submissions
// then, and does not wait for a set that its own first half holds.
TEST_F(MockDevices, OneDescriptorSetForEachSubmission) {
    start("few_sets", {{"HL_VK_FLUSH", "count"}});
    alarm(120);
    Trial trial;
    Halide::Runtime::Buffer<int32_t, 2> base(100, 100);
    for (int round = 0; round < 2; round++) {
        base.for_each_element([&](int x, int y) { base(x, y) = x + 1000 * y; });
        base.set_host_dirty();
        trial.step("upload", [&] { return base.copy_to_device(vulkan()); });
        // 60 rows of 60, moved by one row and one element: through a region in between.
        halide_dimension_t dims[2][2];
        halide_buffer_t sides[2] = {};
        for (int i = 0; i < 2; i++) {
            sides[i].type = halide_type_of<int32_t>();
            sides[i].dimensions = 2;
            sides[i].dim = dims[i];
            dims[i][0] = {i, 60, 1, 0};
            dims[i][1] = {i, 60, 100, 0};
            trial.step("crop", [&] { return vulkan()->device_crop(nullptr, base, &sides[i]); });
            dims[i][0].min = dims[i][1].min = 0;
        }
        sides[0].set_device_dirty(true);
        sync(trial);
        trial.step("device copy", [&] { return halide_buffer_copy(nullptr, &sides[0], vulkan(), &sides[1]); });
        for (halide_buffer_t &side : sides) {
            side.flags = 0;
            halide_device_release_crop(nullptr, &side);
        }
        base.set_host_dirty(false);
        base.set_device_dirty();
        trial.step("download", [&] { return base.copy_to_host(); });
        base.for_each_element([&](int x, int y) {
            const bool moved = x >= 1 && x < 61 && y >= 1 && y < 61;
            const int want = moved ? x - 1 + 1000 * (y - 1) : x + 1000 * y;
            if (base(x, y) != want) trial.expect(false, "element " + std::to_string(x) + ", " + std::to_string(y));
        });
        batch(trial);
        bounced_crop(trial);
    }
    alarm(0);
    is_right(trial);
}

// A launch whose argument has to be copied waits while another thread writes into that allocation, beside it. Such a
// wait, however long, uses nothing up.
TEST_F(MockDevices, ALaunchBesideALongUpload) {
    start("unified", {{"HL_VK_FLUSH", "count"}, {"HL_VK_COPY_THREADS", "2"}});
    alarm(120);
    constexpr int kUploaded = 12 << 20, kAt = kUploaded + 33;
    Trial trial;
    Ints in(80), base(kUploaded + 200);
    base.fill(0);
    upload(trial, in, 3);
    if (trial.step("upload", [&] { return base.copy_to_device(vulkan()); })) {
        Ints part = base.cropped(0, 0, kUploaded);
        std::atomic<bool> launched{false};
        std::thread other([&] {
            do {
                part.set_host_dirty();
                EXPECT_EQ(part.copy_to_device(vulkan()), 0);
            } while (!launched);
        });
        halide_buffer_t raw = {};
        halide_dimension_t dim = {kAt, 80, 1, 0};
        raw.type = halide_type_of<int32_t>();
        raw.dimensions = 1;
        raw.dim = &dim;
        trial.step("crop", [&] { return vulkan()->device_crop(nullptr, base, &raw); });
        for (int i = 0; i < 5; i++) {
            trial.step("launch", [&] { return vector_kernel()(&raw, in, 80, i); });
            sync(trial);
        }
        launched = true;
        other.join();
        raw.set_device_dirty(false);
        halide_device_release_crop(nullptr, &raw);
        Ints end = base.cropped(0, kAt, 80);
        trial.expect_contents("download", end, [&](int i) { return (i - kAt) * 3 + 4; });
    }
    alarm(0);
    is_right(trial);
}

// Waits fail while the process ends, for want of memory, and the GPU still works: what it uses is not destroyed before
// it has said that it is done.
TEST_F(MockDevices, AWaitThatFailsAtExit) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            alarm(60);
            // Runs after the runtime's handler, which is registered later.
            std::atexit([] { _exit(mock_wrong_uses() == 0 && mock_live("") == 0 && mock_failed() > 0 ? 3 : 4); });
            setenv("HL_VK_SPIN", "0", 1);
            start("plain");
            mock_completion(MOCK_AFTER_POLLS, 100);
            static Ints in(100);  // never freed
            static Ints out(100);
            Trial trial;
            upload(trial, in, 3);
            for (int i = 0; i < 5; i++) launch(trial, out, in, i);
            mock_fail("vkWaitSemaphores", -1, VK_ERROR_OUT_OF_HOST_MEMORY);
            exit(trial.any_failed() || mock_pending() == 0 ? 5 : 0);
        },
        ::testing::ExitedWithCode(3), "");
}

// Some drivers promise timeline semaphores, and creation returns an odd positive code or an error: fences serve then.
TEST_F(MockDevices, ATimelineThatCannotBeMade) {
    for (const VkResult result : {VK_INCOMPLETE, VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY}) {
        start("plain");
        ASSERT_TRUE(mock_fail("vkCreateSemaphore", -1, result));
        Trial trial;
        small_round_trip(trial);
        EXPECT_GT(mock_live("VkFence"), 0);
        EXPECT_EQ(mock_live("VkSemaphore"), 0);
        trial.go_on();
        EXPECT_FALSE(trial.any_failed()) << trial.said();
    }
}

// A launch returns while its work is to be done; a sync, of all or of a buffer, returns when it is.
TEST_F(MockDevices, SyncWaitsAndALaunchDoesNot) {
    start("plain");
    for (const bool of_buffer : {false, true}) {
        Trial trial;
        Ints in(100), out(100);
        upload(trial, in, 3);
        allocate(trial, out);
        sync(trial);
        mock_completion(MOCK_BY_HAND, 0);
        launch(trial, out, in, 5);  // would hang here if it waited
        std::atomic<bool> finished{false};
        std::thread gpu([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            finished = true;
            mock_completion(MOCK_AT_ONCE, 0);
        });
        trial.step("sync",
                   [&] { return of_buffer ? out.device_sync() : halide_device_sync_global(nullptr, vulkan()); });
        EXPECT_TRUE(finished) << "the sync came back before the work was done";
        gpu.join();
        trial.expect_contents("download", out, [](int i) { return i * 3 + 5; });
        is_right(trial);
    }
}

// A download where the CPU reads the device's memory itself has to wait for the kernel that wrote the buffer, and for
// nothing that was launched after it.
TEST_F(MockDevices, ACopyToTheHostWaitsForItsOwnWork) {
    start("unified");
    Trial trial;
    Ints in(100), first(100), second(100);
    upload(trial, in, 3);
    allocate(trial, first);
    allocate(trial, second);
    sync(trial);
    mock_completion(MOCK_BY_HAND, 0);
    launch(trial, first, in, 5);
    mock_finish(0);
    launch(trial, second, in, 6);
    EXPECT_GE(mock_pending(), 1u) << "nothing is in flight, so nothing is tested";
    std::thread gpu = finish_after(1000);
    trial.expect_contents("download", first, [](int i) { return i * 3 + 5; });
    EXPECT_GE(mock_pending(), 1u) << "the copy waited for another buffer's kernel";
    gpu.join();
    trial.expect_contents("download", second, [](int i) { return i * 3 + 6; });
    is_right(trial);
}

// While one thread waits for the GPU, others launch, allocate, upload and free: no lock is held across the wait.
TEST_F(MockDevices, AWaitHoldsNoLock) {
    start("h200");
    Trial trial;
    Ints in(100), slow(100), other(100);
    upload(trial, in, 3);
    allocate(trial, slow);
    allocate(trial, other);
    sync(trial);
    mock_completion(MOCK_BY_HAND, 0);
    launch(trial, slow, in, 5);
    mock_reset();
    std::atomic<int> returned{0};
    std::vector<std::thread> waiting;
    for (int i = 0; i < 3; i++) {
        waiting.emplace_back([&] {
            EXPECT_EQ(halide_device_sync_global(nullptr, vulkan()), 0);
            returned++;
        });
    }
    for (int i = 0; i < 2000 && waits() < waiting.size(); i++) usleep(1000);
    EXPECT_EQ(waits(), waiting.size()) << "one waits for the other, not for the GPU";
    std::thread gpu = finish_after(2000);
    for (int i = 0; i < 5; i++) {
        launch(trial, other, in, i);
        Ints fresh(200);
        upload(trial, fresh, 2);
        launch(trial, fresh, in, 1);
        fresh.set_device_dirty(false);
    }
    EXPECT_EQ(returned, 0) << "the calls had to wait until the GPU was done";
    gpu.join();
    for (std::thread &thread : waiting) thread.join();
    trial.expect_contents("download", slow, [](int i) { return i * 3 + 5; });
    trial.expect_contents("download", other, [](int i) { return i * 3 + 4; });
    is_right(trial);
}

// A blocked wait wakes tens of microseconds late: work that is soon done is seen by looking, without a blocking wait.
TEST_F(MockDevices, AShortWaitLooks) {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    if (CPU_COUNT(&cores) < 2) GTEST_SKIP() << "with one core it must not: see OneCoreNeverSpins";
    start("h200");
    mock_completion(MOCK_AFTER_POLLS, 4);
    Trial trial;
    Ints in(100), out(100);
    upload(trial, in, 3);
    allocate(trial, out);
    for (int i = 0; i < 5; i++) {
        launch(trial, out, in, i);
        sync(trial);
    }
    mock_reset();
    for (int i = 0; i < 50; i++) {
        launch(trial, out, in, i);
        sync(trial);
    }
    // A busy machine may take the processor away in the middle of a look.
    EXPECT_LE(waits(), 5u);
    EXPECT_GE(looks(), 50u);
    is_right(trial);
}

// The opposite complaint is a core at 100 % during long kernels; with eight threads that wait, eight.
TEST_F(MockDevices, ALongWaitBlocks) {
    for (const size_t threads : {1, 8}) {
        start("h200");
        Trial trial;
        Ints in(100), out(100);
        upload(trial, in, 3);
        allocate(trial, out);
        launch(trial, out, in, 1);
        sync(trial);
        mock_completion(MOCK_BY_HAND, 0);
        launch(trial, out, in, 2);
        mock_reset();
        std::thread gpu = finish_after(400);
        const double before = processor_seconds();
        std::vector<std::thread> waiting;
        for (size_t i = 1; i < threads; i++)
            waiting.emplace_back([] { EXPECT_EQ(halide_device_sync_global(nullptr, vulkan()), 0); });
        sync(trial);
        for (std::thread &thread : waiting) thread.join();
        const double used = processor_seconds() - before;
        gpu.join();
        EXPECT_LT(used, 0.04) << "of 0.4 s, by " << threads << " threads";
        EXPECT_GE(waits(), threads);
        is_right(trial);
    }
}

// With one core, whoever spins keeps the GPU's own software from running.
TEST_F(MockDevices, OneCoreNeverSpins) {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    }
    start("h200", {{"HL_VK_FLUSH", "count"}});
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    mock_completion(MOCK_AFTER_POLLS, 100);
    Trial trial;
    Ints in(100), out(100);
    upload(trial, in, 3);
    allocate(trial, out);
    sync(trial);
    mock_reset();
    for (int i = 0; i < 20; i++) {
        launch(trial, out, in, i);
        sync(trial);
    }
    EXPECT_LE(looks(), 60u) << "at most a look or two for each launch";
    EXPECT_EQ(waits(), 20u);
    is_right(trial);
    ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

}  // namespace
}  // namespace fault
