// Memory and copies of the runtime on devices where something is scarce or in another's hands: descriptor sets, memory,
// bytes that the CPU may not touch yet, VkBuffers that an application knows.

#include "mock_devices.h"

#include "../../src/runtime/halide_vulkan_stats.h"

namespace fault {
namespace {

class MockMemory : public MockDevices {
protected:
    void SetUp() override {
        MockDevices::SetUp();
        snprintf(now_running(), 512, "%s", ::testing::UnitTest::GetInstance()->current_test_info()->name());
        alarm(60);
    }
    void TearDown() override {
        alarm(0);
        MockDevices::TearDown();
    }

    static uint64_t copies() { return mock_count("vkCmdCopyBuffer"); }
    static uint64_t barriers() { return mock_count("vkCmdPipelineBarrier"); }
};

// A crop of another buffer's device memory, as a halide_buffer_t. Ends before the buffer does.
struct Crop {
    halide_buffer_t raw = {};
    halide_dimension_t dim;
    Crop(Ints &of, int begin, int count) : dim{begin, count, 1, 0} {
        raw.type = halide_type_of<int32_t>();
        raw.dimensions = 1;
        raw.dim = &dim;
        EXPECT_EQ(vulkan()->device_crop(nullptr, of, &raw), 0);
    }
    ~Crop() { end(); }
    void end() {
        raw.set_device_dirty(false);
        if (raw.device) {
            EXPECT_EQ(halide_device_release_crop(nullptr, &raw), 0);
        }
    }
};

// Every third element, which a kernel copies, moved by one row within its own buffer: two dispatches for one copy.
// Where a batch has a single set for them, the second goes into the next batch.
TEST_F(MockMemory, OverlappingCopiesWithFewSets) {
    for (const char *profile : {"plain", "few_sets"}) {
        start(profile, {{"HL_VK_FLUSH", "count"}});
        mock_completion(MOCK_AFTER_POLLS, 2);
        Trial trial;
        constexpr int kRows = 50;
        Ints base(3 * kRows);
        upload(trial, base, 1);
        for (int round = 0; round < 3; round++) {
            Crop from(base, 0, 3 * kRows), to(base, 0, 3 * kRows);
            from.dim = {0, kRows - 1, 3, 0};
            to.dim = from.dim;
            Crop shifted(base, 3, 3 * (kRows - 1));
            shifted.dim = {0, kRows - 1, 3, 0};
            from.raw.set_device_dirty();
            trial.step("device copy", [&] { return halide_buffer_copy(nullptr, &from.raw, vulkan(), &shifted.raw); });
            sync(trial);
        }
        trial.expect_contents("download", base, [](int i) { return i % 3 || i < 9 ? (i % 3 ? i : 0) : i - 9; });
        is_right(trial);
    }
}

// A kernel that reaches its argument through a copy has to wait while another thread writes other bytes of the buffer
// itself. However long that takes, it runs afterwards.
TEST_F(MockMemory, BouncedCropBesideALongUpload) {
    start("unified");
    Trial trial;
    constexpr int kCount = 16 << 20;
    Ints base(kCount), in(80);
    upload(trial, in, 3);
    allocate(trial, base);
    Ints large(kCount - 1000);
    fill(large, 5);
    std::atomic<int> rounds{0};
    std::atomic<bool> enough{false};
    std::thread uploads([&] {
        Crop part(base, 1000, kCount - 1000);
        part.raw.host = (uint8_t *)large.data();
        do {
            part.raw.set_host_dirty();
            EXPECT_EQ(halide_copy_to_device(nullptr, &part.raw, vulkan()), 0);
            rounds++;
        } while (!enough);
        part.raw.set_host_dirty(false);
    });
    int add = 0;
    while (add < 20 || rounds < 3) {
        Crop part(base, 33, 80);
        add++;
        trial.step("launch", [&] { return vector_kernel()(&part.raw, in, 80, add); });
        sync(trial);
    }
    enough = true;
    uploads.join();
    trial.expect_contents("download", base, [add](int i) {
        return i >= 33 && i < 113 ? (i - 33) * 3 + add : i >= 1000 ? (i - 1000) * 5 : 0;
    });
    is_right(trial);
}

// What the GPU wrote is the CPU's to write over when a barrier to the host behind it has run; that one is submitted is
// not enough.
TEST_F(MockMemory, TheCpuWaitsForTheBarrierToTheHost) {
    start("h200", {{"HL_VK_FLUSH", "always"}});
    Trial trial;
    Ints in(100), direct(100), written(200);
    upload(trial, in, 3);
    upload(trial, direct, 1);  // so that what writes it ends with a barrier to the host
    allocate(trial, written);
    sync(trial);
    mock_completion(MOCK_BY_HAND, 0);
    trial.step("launch", [&] { return line_kernel()(written, in, 100, 1); });
    mock_finish(0);
    trial.step("launch", [&] { return line_kernel()(direct, in, 100, 2); });
    ASSERT_EQ(mock_pending(), 1u);
    mock_reset();
    Ints part(50);
    fill(part, 7);
    Crop half(written, 50, 50);
    half.raw.host = (uint8_t *)part.data();
    half.raw.set_host_dirty();
    trial.step("upload", [&] { return halide_copy_to_device(nullptr, &half.raw, vulkan()); });
    EXPECT_EQ(copies(), 1u) << "the CPU wrote it itself";
    mock_completion(MOCK_AT_ONCE, 0);
    sync(trial);
    mock_reset();
    half.raw.set_host_dirty();
    trial.step("upload", [&] { return halide_copy_to_device(nullptr, &half.raw, vulkan()); });
    EXPECT_EQ(copies(), 0u) << "the barrier is done";
    half.raw.set_host_dirty(false);
    half.end();
    written.set_host_dirty(false);
    written.set_device_dirty();
    trial.step("download", [&] { return written.copy_to_host(); });
    for (int i = 0; i < 100; i++) ASSERT_EQ(written(i), i < 50 ? i * 3 + 1 : (i - 50) * 7) << i;
    is_right(trial);
}

// Where device and host share their memory, and it is full of blocks that lie idle, these give way to staging.
TEST_F(MockMemory, IdleBlocksGiveWayToStaging) {
    for (const bool in_flight : {false, true}) {
        start("tight", {{"HL_VK_FLUSH", "count"}});
        mock_completion(in_flight ? MOCK_AFTER_POLLS : MOCK_AT_ONCE, 1000);
        Trial trial;
        {
            std::vector<Ints> all;
            Ints in(100);
            upload(trial, in, 3);
            for (int megabytes : {14, 16, 16, 15}) {  // 61, with the 16 of the first block 62 of 64
                if (all.empty()) megabytes = 12;
                all.emplace_back(megabytes << 18);
                if (!allocate(trial, all.back())) break;
                Ints part = all.back().cropped(0, 0, 100);
                trial.step("launch", [&] { return line_kernel()(part, in, 100, 1); });
                part.set_device_dirty(false);
            }
        }
        Ints a(1 << 18);
        upload(trial, a, 5);  // too much to be written directly
        trial.expect_contents("download", a, [](int i) { return i * 5; });
        is_right(trial);
    }
}

// The same the other way round: a copy that overlaps itself needs a region of its own for a moment.
TEST_F(MockMemory, StagingGivesWayToACopyWithinABuffer) {
    start("tight", {{"HL_VK_FLUSH", "count"}});
    mock_completion(MOCK_AFTER_POLLS, 1000);
    Trial trial;
    constexpr int kCount = 24 << 18;  // 24 MiB
    Ints a(kCount);
    upload(trial, a, 5);  // by rings of 4, 8 and 16 MiB
    {
        Crop from(a, 0, kCount - 100), to(a, 100, kCount - 100);
        to.dim.min = 0;
        from.raw.set_device_dirty();
        trial.step("device copy", [&] { return halide_buffer_copy(nullptr, &from.raw, vulkan(), &to.raw); });
    }
    trial.expect_contents("download", a, [](int i) { return i < 100 ? i * 5 : (i - 100) * 5; });
    is_right(trial);
}

// And to a launch that reaches its argument through a copy.
TEST_F(MockMemory, StagingGivesWayToALaunch) {
    start("tight", {{"HL_VK_FLUSH", "count"}});
    mock_completion(MOCK_AFTER_POLLS, 1000);
    Trial trial;
    constexpr int kCount = 20 << 18;  // 20 MiB, and as much for the copy
    Ints base(kCount), in(80);
    upload(trial, base, 5);
    upload(trial, in, 3);
    const uint64_t held = mock_allocated_bytes();
    mock_reset();
    {
        Crop part(base, 33, kCount - 33);
        trial.step("launch", [&] { return vector_kernel()(&part.raw, in, 80, 7); });
    }
    EXPECT_GT(mock_count("vkFreeMemory"), 0u) << "nothing had to give way: " << held << " bytes were held";
    trial.expect_contents("download", base, [](int i) { return i >= 33 && i < 113 ? (i - 33) * 3 + 7 : i * 5; });
    is_right(trial);
}

// An application may put the VkBuffer that it got for one buffer under another: these are the same bytes, so work on
// both is kept in order, and they live until both are gone.
TEST_F(MockMemory, AVkBufferOfOursThatIsWrapped) {
    start("plain", {{"HL_VK_FLUSH", "count"}});
    Trial trial;
    Ints in(100), out(100), same(nullptr, 100);
    upload(trial, in, 3);
    allocate(trial, out);
    const int64_t buffers = mock_live("VkBuffer");
    {
        Ints base(100);
        allocate(trial, base);
        const uintptr_t known = halide_vulkan_get_vk_buffer(nullptr, base);
        ASSERT_NE(known, 0u);
        ASSERT_EQ(halide_vulkan_wrap_vk_buffer(nullptr, same, known), 0);
        EXPECT_EQ(halide_vulkan_get_vk_buffer(nullptr, same), known);
        launch(trial, out, in, 0);
        launch(trial, base, in, 1);
        mock_reset();
        launch(trial, out, same, 2);
        EXPECT_EQ(barriers(), 1u) << "it reads what the launch before writes";
        base.set_device_dirty(false);
    }
    trial.expect_contents("download", out, [](int i) { return i * 3 + 3; });
    launch(trial, out, same, 4);
    trial.expect_contents("download", out, [](int i) { return i * 3 + 5; });
    EXPECT_EQ(halide_vulkan_detach_vk_buffer(nullptr, same), 0);
    launch(trial, out, in, 6);
    sync(trial);  // what dies is looked for at the end of a wait
    EXPECT_EQ(mock_live("VkBuffer"), buffers);
    is_right(trial);
}

// A VkBuffer that is handed out begins at the data, or there is none: of our memory, of an application's, and where the
// element of minimal coordinates is not the lowest byte.
TEST_F(MockMemory, AVkBufferBeginsAtTheData) {
    start("plain");
    Trial trial;
    Ints base(100), same(nullptr, 100);
    allocate(trial, base);
    const uintptr_t known = halide_vulkan_get_vk_buffer(nullptr, base);
    ASSERT_EQ(halide_vulkan_wrap_vk_buffer(nullptr, same, known), 0);
    for (Ints *of : {&base, &same}) {
        Crop whole(*of, 0, 100), later(*of, 10, 20);
        EXPECT_EQ(halide_vulkan_get_vk_buffer(nullptr, &whole.raw), known);
        messages().clear();
        EXPECT_EQ(halide_vulkan_get_vk_buffer(nullptr, &later.raw), 0u);
        EXPECT_EQ(messages().size(), 1u);
        messages().clear();
    }
    EXPECT_EQ(halide_vulkan_detach_vk_buffer(nullptr, same), 0);

    halide_dimension_t downwards = {0, 100, -1, 0};
    Ints turned(nullptr, 1, &downwards), wrapped(nullptr, 1, &downwards);
    allocate(trial, turned);
    const uintptr_t handle = halide_vulkan_get_vk_buffer(nullptr, turned);
    EXPECT_NE(handle, 0u);
    ASSERT_EQ(halide_vulkan_wrap_vk_buffer(nullptr, wrapped, handle), 0);
    EXPECT_EQ(halide_vulkan_get_vk_buffer(nullptr, wrapped), handle);
    EXPECT_EQ(halide_vulkan_detach_vk_buffer(nullptr, wrapped), 0);
    is_right(trial);
}

// Without reuse, memory goes back to the driver with the last that holds it, which may be a crop.
TEST_F(MockMemory, WithoutReuseACropGivesBackWhatItHeld) {
    start("plain");
    halide_reuse_device_allocations(nullptr, false);
    Trial trial;
    Ints in(100);
    upload(trial, in, 3);
    const uint64_t before = mock_allocated_bytes();
    {
        Ints base(20 << 20);
        allocate(trial, base);
        Crop part(base, 64, 100);
        EXPECT_EQ(base.device_free(), 0);
        EXPECT_GT(mock_allocated_bytes(), before);
        trial.step("launch", [&] { return line_kernel()(&part.raw, in, 100, 1); });
        part.end();
    }
    EXPECT_LE(mock_allocated_bytes(), before);  // staging went as well
    halide_reuse_device_allocations(nullptr, true);
    is_right(trial);
}

// A busy buffer that is overwritten has fresh bytes; the old ones, kept for the kernel that reads them, are no
// buffer's.
TEST_F(MockMemory, BytesInUseAreThoseOfBuffers) {
    start("h200", {{"HL_VK_FLUSH", "always"}});
    const auto used = [] {
        halide_vulkan_stats stats = {};
        EXPECT_EQ(halide_vulkan_get_stats(nullptr, &stats, sizeof(stats)), 0);
        return stats.used_bytes;
    };
    Trial trial;
    Ints in(10000), out(10000);
    upload(trial, in, 3);
    allocate(trial, out);
    sync(trial);
    const uint64_t before = used();
    mock_completion(MOCK_BY_HAND, 0);
    launch(trial, out, in, 1);
    mock_reset();
    upload(trial, in, 5);
    EXPECT_EQ(copies(), 0u) << "it has the old bytes, so nothing is tested";
    EXPECT_EQ(used(), before);
    mock_completion(MOCK_AT_ONCE, 0);
    trial.expect_contents("download", out, [](int i) { return i * 3 + 1; });
    launch(trial, out, in, 2);
    trial.expect_contents("download", out, [](int i) { return i * 5 + 2; });
    EXPECT_EQ(used(), before);
    is_right(trial);
}

// Two buffers that have no coordinate in common, however far apart: nothing is copied.
TEST_F(MockMemory, ACopyOfNothing) {
    start("plain");
    Trial trial;
    int32_t one = 1, other = 2;
    const halide_dimension_t lowest = {INT32_MIN, 1, INT32_MAX, 0}, highest = {INT32_MAX, 1, INT32_MAX, 0};
    Ints from(&one, 1, &lowest), to(&other, 1, &highest);
    from.set_host_dirty();
    to.set_host_dirty();
    trial.step("upload", [&] { return from.copy_to_device(vulkan()); });
    trial.step("upload", [&] { return to.copy_to_device(vulkan()); });
    for (const bool from_host : {false, true}) {
        from.set_host_dirty(from_host);
        trial.step("device copy", [&] { return halide_buffer_copy(nullptr, from, vulkan(), to); });
    }
    from.set_host_dirty(false);
    to.set_device_dirty();
    trial.step("download", [&] { return to.copy_to_host(); });
    EXPECT_EQ(other, 2);
    is_right(trial);
}

// A crop outside of its buffer is refused, also where its distance is no 64-bit number, or a multiple of 2^64.
TEST_F(MockMemory, ACropOfNowhere) {
    start("plain");
    int64_t one = 1;
    for (const int far : {1 << 24, INT32_MAX, INT32_MIN}) {
        halide_dimension_t shape[2] = {{0, 1, INT32_MAX, 0}, {0, 1, 1 << 30, 0}};
        Halide::Runtime::Buffer<int64_t, 2> of(&one, 2, shape);
        EXPECT_EQ(of.device_malloc(vulkan()), 0);
        halide_dimension_t there[2] = {shape[0], shape[1]};
        halide_buffer_t raw = {};
        raw.type = halide_type_of<int64_t>();
        raw.dimensions = 2;
        raw.dim = there;
        for (const bool both : {false, true}) {
            there[1].min = far;
            there[0].min = both ? far : 0;
            messages().clear();
            EXPECT_NE(vulkan()->device_crop(nullptr, of, &raw), 0) << far;
            EXPECT_EQ(messages().size(), 1u);
            EXPECT_EQ(raw.device, 0u);
        }
        raw.dimensions = 1;
        messages().clear();
        EXPECT_NE(vulkan()->device_slice(nullptr, of, 1, far, &raw), 0) << far;
        EXPECT_EQ(messages().size(), 1u);
        messages().clear();
    }
}

// A buffer without elements is allocated like any other: anew where its device was released.
TEST_F(MockMemory, AnEmptyBufferOutlivesItsDevice) {
    start("plain");
    Trial trial;
    Ints empty(nullptr, 0);
    allocate(trial, empty);
    EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
    for (const bool dirty : {false, true}) {
        empty.set_device_dirty(dirty);
        Ints out(100);
        allocate(trial, empty);
        allocate(trial, out);
        trial.step("launch", [&] { return line_kernel()(out, empty, 100, 7); });
        out.set_device_dirty(false);
        EXPECT_EQ(halide_vulkan_device_release(nullptr), 0);
    }
    empty.set_device_dirty(false);
    is_right(trial);
}

}  // namespace
}  // namespace fault
