// Kernel blobs of both kinds, made by hand: as Halide 19 and 21 emit them, and as its main branch does.
//
// The blob has no version word. Which kind a kernel is shows in its uniform block only: main's has one int32 per buffer
// after the scalars, an index offset that the kernel adds (ABI 5.7, 10.3). No released wheel emits that kind, so the
// test assembles the SPIR-V itself (spirv/*.spvasm, assembled when the project is built), wraps it into a blob, and
// calls halide_vulkan_initialize_kernels, _run and _finalize_kernels as generated code would. Bases, crops at odd
// offsets and crops of crops must give right results with either kind, also where the array's elements are vectors, so
// that the offset cannot express a crop by one int.
//
// The same hands damage the blob: every truncation and a thousand corruptions must be refused or survive, never crash.
//
// Stock 21: crashes in Version21 on lavapipe (buffers of 800 bytes) and has no code for the main kind.

#include "support.h"

#include <fstream>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words32 = std::vector<uint32_t>;
using Line = Runtime::Buffer<int32_t, 1>;

constexpr const char *kName = "_kernel_line";

// HV_SPIRV names the folder of the assembled files.
Words32 read_spirv(const std::string &name) {
    const char *folder = std::getenv("HV_SPIRV");
    const std::string path = std::string(folder ? folder : ".") + "/" + name + ".spv";
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_FALSE(bytes.empty()) << "cannot read " << path;
    Words32 words(bytes.size() / 4);
    std::memcpy(words.data(), bytes.data(), words.size() * 4);
    return words;
}

void add_string(Words32 &to, const std::string &text) {
    const size_t words = text.size() / 4 + 1;
    to.push_back((uint32_t)words);
    const size_t at = to.size();
    to.resize(at + words, 0);
    std::memcpy(&to[at], text.data(), text.size());
}

// One kernel with one uniform block and two storage buffers; nothing is specialized and nothing shared.
Words32 make_blob(const Words32 &spirv) {
    Words32 module = {0, 1};
    add_string(module, kName);
    for (uint32_t word : {1u, 2u, 0u, 0u, 0u, 0u, 0u}) module.push_back(word);
    module[0] = (uint32_t)module.size();
    module.insert(module.end(), spirv.begin(), spirv.end());
    Words32 blob = {1, (uint32_t)module.size() * 4};
    add_string(blob, kName);
    blob.insert(blob.end(), module.begin(), module.end());
    return blob;
}

// The same program, 4 * `strings` * 64 KiB longer, and different for each number: debug strings that nothing refers to.
Words32 padded(Words32 spirv, int strings, uint32_t number) {
    size_t at = 5, end_of_modes = 5;
    for (; at < spirv.size(); at += spirv[at] >> 16) {
        if ((spirv[at] & 0xffff) == 16) end_of_modes = at + (spirv[at] >> 16);  // OpExecutionMode
    }
    Words32 text;
    for (int i = 0; i < strings; i++) {
        text.push_back(65535u << 16 | 7);  // OpString
        text.push_back(spirv[3]++);        // a new id
        text.insert(text.end(), 65532, 0x20202020u + number);
        text.push_back(0);
    }
    spirv.insert(spirv.begin() + (std::ptrdiff_t)end_of_modes, text.begin(), text.end());
    return spirv;
}

// The runtime's three entry points that generated code calls by name.
struct Kernel {
    Words32 blob;
    void *state = nullptr;
    Context context;

    int (*initialize)(void *, void **, const char *,
                      int) = runtime_call<int(void *, void **, const char *, int)>("halide_vulkan_initialize_kernels");
    int (*run)(void *, void *, const char *, int, int, int, int, int, int, int, size_t[], void *[],
               int8_t[]) = runtime_call<int(void *, void *, const char *, int, int, int, int, int, int, int, size_t[],
                                            void *[], int8_t[])>("halide_vulkan_run");
    void (*finalize)(void *, void *) = runtime_call<void(void *, void *)>("halide_vulkan_finalize_kernels");

    explicit Kernel(const std::string &spirv) : blob(make_blob(read_spirv(spirv))) {}
    // out = in + add over n elements, as one pipeline call would do it. `elements` per thread: 4 for the vector kernel.
    int operator()(halide_buffer_t *out, halide_buffer_t *in, int n, int add, int elements = 1) {
        int code = initialize(context.raw(), &state, (const char *)blob.data(), (int)blob.size() * 4);
        if (code) return code;
        int count = n / elements;
        size_t sizes[5] = {8, 8, 4, 4, 0};
        void *args[5] = {out, in, &count, &add, nullptr};
        int8_t is_buffer[5] = {1, 1, 0, 0, 0};
        code = run(context.raw(), state, kName, (count + 15) / 16, 1, 1, 16, 1, 1, 0, sizes, args, is_buffer);
        if (code == 0) out->set_device_dirty(true);
        finalize(context.raw(), state);
        return code;
    }
};

// Every pair of offsets, base and crop, checked in the base.
template<typename T>
void crops_at_every_offset(const std::string &spirv, int elements) {
    using Buf = Runtime::Buffer<T, 1>;
    Kernel kernel(spirv);
    const int n = 200, extent = 80;
    for (int out_at : {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 64, 100}) {
        for (int in_at : {0, 1, 2, 3, 4, 16, 17, 33}) {
            Buf in(n), out(n);
            fill(in, [](const int *p) { return p[0] * 3; });
            fill(out, [](const int *p) { return 200 - p[0]; });
            ASSERT_OK(in.copy_to_device(vulkan_interface()));
            ASSERT_OK(out.copy_to_device(vulkan_interface()));
            {
                Buf from = in.cropped(0, in_at, extent), to = out.cropped(0, out_at, extent);
                ASSERT_EQ(kernel(to.raw_buffer(), from.raw_buffer(), extent, 5, elements), 0) << kernel.context.all();
            }
            out.set_device_dirty();
            ASSERT_OK(out.copy_to_host());
            ASSERT_TRUE(matches(out,
                                [&](const int *p) {
                                    const int i = p[0] - out_at;
                                    return i >= 0 && i < extent ? (T)((in_at + i) * 3 + 5) : (T)(200 - p[0]);
                                }))
                << "out at " << out_at << ", in at " << in_at;
        }
    }
    EXPECT_EQ(kernel.context.all(), "");
}

TEST(GpuBlobMain, Version21) { crops_at_every_offset<int32_t>("line_v21", 1); }
TEST(GpuBlobMain, MainInts) { crops_at_every_offset<int32_t>("line_main", 1); }
TEST(GpuBlobMain, MainBytes) { crops_at_every_offset<uint8_t>("bytes_main", 1); }
TEST(GpuBlobMain, MainVectors) { crops_at_every_offset<int32_t>("vector_main", 4); }

// Both kinds in one process, alternating, with no sync in between.
TEST(GpuBlobMain, BothKindsInTurn) {
    Kernel old_kind("line_v21"), new_kind("line_main");
    Line a(500), b(500);
    fill(a, [](const int *p) { return p[0]; });
    fill(b, [](const int *) { return 0; });
    ASSERT_OK(a.copy_to_device(vulkan_interface()));
    ASSERT_OK(b.copy_to_device(vulkan_interface()));
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(old_kind(b.raw_buffer(), a.raw_buffer(), 500, i), 0) << old_kind.context.all();
        ASSERT_EQ(new_kind(a.raw_buffer(), b.raw_buffer(), 500, 1), 0) << new_kind.context.all();
    }
    ASSERT_OK(a.copy_to_host());
    EXPECT_TRUE(matches(a, [](const int *p) { return p[0] + 49 * 50 / 2 + 50; }));
}

TEST(GpuBlobMain, CropsOfCrops) {
    for (const char *spirv : {"line_v21", "line_main"}) {
        Kernel kernel(spirv);
        Line base(300);
        fill(base, [](const int *p) { return p[0]; });
        ASSERT_OK(base.copy_to_device(vulkan_interface()));
        {
            Line first = base.cropped(0, 33, 200), second = first.cropped(0, 64, 100),
                 third = second.cropped(0, 71, 50);
            ASSERT_EQ(kernel(third.raw_buffer(), third.raw_buffer(), 50, 1000), 0) << kernel.context.all();
        }
        base.set_device_dirty();
        ASSERT_OK(base.copy_to_host());
        ASSERT_TRUE(matches(base, [](const int *p) { return p[0] + (p[0] >= 71 && p[0] < 121 ? 1000 : 0); })) << spirv;
    }
}

// New kernels without end: neither their code nor their pipelines pile up, and one that comes back works.
TEST(GpuBlobMain, NewKernelsWithoutEnd) {
    const Words32 line = read_spirv("line_v21");
    Line a(100), b(100);
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(a.copy_to_device(vulkan_interface()));
    allocate_on_device(b);
    const int64_t before = hv_layer_live("VkPipeline");
    Kernel kernel("line_v21");
    void *first_state = nullptr;
    for (int i = 0; i <= 170; i++) {
        const int number = i % 170;  // the last one is the first again, with its old state
        kernel.blob = make_blob(padded(line, 4, (uint32_t)number));
        kernel.state = i == 170 ? first_state : nullptr;
        ASSERT_EQ(kernel(b.raw_buffer(), a.raw_buffer(), 100, i), 0) << kernel.context.all();
        if (i == 0) first_state = kernel.state;
        if (i % 50 == 0 || i == 170) {
            ASSERT_OK(b.copy_to_host());
            ASSERT_TRUE(matches(b, [&](const int *p) { return p[0] + i; })) << i;
        }
    }
    // 64 MiB of code are kept, and dropped ones are looked for now and then.
    EXPECT_LE(hv_layer_live("VkPipeline") - before, 110);
    EXPECT_GE(hv_layer_live("VkPipeline") - before, 60);
}

// The state survives a release of the device, and the blob may move: nothing may point into it any more.
TEST(GpuBlobMain, BlobMovesAndDeviceIsReleased) {
    Kernel kernel("line_main");
    Line a(100);
    for (int round = 0; round < 4; round++) {
        fill(a, [](const int *p) { return p[0]; });
        ASSERT_OK(a.copy_to_device(vulkan_interface()));
        ASSERT_EQ(kernel(a.raw_buffer(), a.raw_buffer(), 100, round), 0) << kernel.context.all();
        ASSERT_OK(a.copy_to_host());
        ASSERT_TRUE(matches(a, [&](const int *p) { return p[0] + round; }));
        a.device_free();
        Words32 moved = kernel.blob;
        std::fill(kernel.blob.begin(), kernel.blob.end(), 0xffffffffu);
        kernel.blob.swap(moved);
        if (round % 2) vulkan_interface()->device_release(nullptr, vulkan_interface());
    }
}

// A good call after each bad one.
class GpuBlobDamaged : public ::testing::Test {
protected:
    Kernel good{"line_v21"};
    void good_call_works() {
        Line a(64);
        fill(a, [](const int *p) { return p[0]; });
        ASSERT_OK(a.copy_to_device(vulkan_interface()));
        ASSERT_EQ(good(a.raw_buffer(), a.raw_buffer(), 64, 9), 0) << good.context.all();
        ASSERT_OK(a.copy_to_host());
        ASSERT_TRUE(matches(a, [](const int *p) { return p[0] + 9; }));
    }
    // Refused with one message, either when it is initialized or when it is run.
    void refused(Kernel &kernel, const std::vector<std::string> &parts = {}) {
        Line a(64);
        ASSERT_OK(a.device_malloc(vulkan_interface()));
        EXPECT_LT(kernel(a.raw_buffer(), a.raw_buffer(), 64, 9), 0);
        EXPECT_TRUE(one_message(kernel.context, parts));
        kernel.context.clear();
        kernel.state = nullptr;
    }
};

TEST_F(GpuBlobDamaged, EveryTruncation) {
    const size_t header = make_blob({}).size();
    for (size_t words = 0; words < good.blob.size(); words += words < header + 8 ? 1 : 17) {
        Kernel cut("line_v21");
        cut.blob.resize(words);
        refused(cut, {"Vulkan"});
        if (HasFailure()) FAIL() << "cut to " << words << " words";
    }
    good_call_works();
}

TEST_F(GpuBlobDamaged, HeaderWords) {
    const size_t header = make_blob({}).size();
    // Each word of the header set to values that overflow something. Some hits are harmless (a letter of a name that is
    // never compared), so a success is accepted; a crash or a second message is not.
    for (size_t at = 0; at < header; at++) {
        for (uint32_t value : {0xffffffffu, 0x80000000u, 0x7fffffffu, 1000000u}) {
            Kernel bad("line_v21");
            bad.blob[at] = value;
            Line a(64);
            ASSERT_OK(a.device_malloc(vulkan_interface()));
            const int code = bad(a.raw_buffer(), a.raw_buffer(), 64, 9);
            EXPECT_EQ(bad.context.errors.size(), code == 0 ? 0u : 1u) << "word " << at << " " << bad.context.all();
        }
    }
    good_call_works();
}

TEST_F(GpuBlobDamaged, NoMagicNumber) {
    Kernel bad("line_v21");
    bad.blob[make_blob({}).size()] = 0xabcdef01;
    refused(bad, {"SPIR-V", "_kernel_line"});
    good_call_works();
}

// Runs of zero words, over-long instructions and ids out of bounds in the SPIR-V. Only what a reader must check is
// damaged here; SPIR-V that is well-formed and wrong goes to the driver, which is allowed to trust it.
TEST_F(GpuBlobDamaged, SpirvStructure) {
    const size_t header = make_blob({}).size();
    for (size_t at = header + 5; at < good.blob.size(); at += 7) {
        Kernel zero_length("line_v21");
        for (size_t i = at; i < zero_length.blob.size(); i++) zero_length.blob[i] = 0;
        refused(zero_length, {"Vulkan"});
        if (HasFailure()) FAIL() << "zeros from word " << at;
    }
    Kernel too_long("line_v21");
    too_long.blob[header + 5] = 0xffff0011;  // OpCapability with 65,535 words
    refused(too_long, {"Vulkan"});
    good_call_works();
}

TEST_F(GpuBlobDamaged, EmptyAndNull) {
    Context &context = good.context;
    void *state = nullptr;
    EXPECT_LT(good.initialize(context.raw(), &state, nullptr, 0), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    EXPECT_LT(good.initialize(context.raw(), &state, (const char *)good.blob.data(), -4), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    good_call_works();
}

// Run with a name that is not in the blob, with the wrong number of arguments, and with no state at all.
TEST_F(GpuBlobDamaged, RunThatDoesNotFit) {
    good_call_works();
    Line a(64);
    ASSERT_OK(a.device_malloc(vulkan_interface()));
    Context &context = good.context;
    ASSERT_EQ(good.initialize(context.raw(), &good.state, (const char *)good.blob.data(), (int)good.blob.size() * 4),
              0);
    int n = 64, add = 1;
    const auto run = [&](void *state, const char *name, int buffers, int scalars) {
        std::vector<size_t> sizes;
        std::vector<void *> args;
        std::vector<int8_t> is_buffer;
        for (int i = 0; i < buffers; i++) sizes.push_back(8), args.push_back(a.raw_buffer()), is_buffer.push_back(1);
        for (int i = 0; i < scalars; i++) sizes.push_back(4), args.push_back(i ? &add : &n), is_buffer.push_back(0);
        sizes.push_back(0), args.push_back(nullptr), is_buffer.push_back(0);
        return good.run(context.raw(), state, name, 4, 1, 1, 16, 1, 1, 0, sizes.data(), args.data(), is_buffer.data());
    };
    EXPECT_LT(run(good.state, "_kernel_other", 2, 2), 0);
    EXPECT_TRUE(one_message(context, {"_kernel_other"}));
    context.clear();
    EXPECT_LT(run(good.state, kName, 1, 2), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    EXPECT_LT(run(good.state, kName, 3, 2), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    EXPECT_LT(run(good.state, kName, 2, 1), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    EXPECT_LT(run(nullptr, kName, 2, 2), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();
    good.finalize(context.raw(), good.state);
    good_call_works();
    EXPECT_EQ(context.all(), "");
}

}  // namespace
