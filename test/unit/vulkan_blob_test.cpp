// The blob parser: what real blobs hold, and that damage is refused, never believed and never followed.

#include <random>

#include <gtest/gtest.h>

static int allocations_left = -1;  // -1: no limit
static int allocations_alive = 0;
static void *limited_malloc(size_t bytes);
static void counted_free(void *pointer);
#define HALIDE_VULKAN_MALLOC(bytes) limited_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) counted_free(pointer)
#include "vulkan_blob.h"

#include "kernel_inputs.h"

static void *limited_malloc(size_t bytes) {
    if (allocations_left == 0) return nullptr;
    if (allocations_left > 0) allocations_left--;
    allocations_alive++;
    return malloc(bytes);
}
static void counted_free(void *pointer) {
    allocations_alive--;
    free(pointer);
}

using namespace halide_vulkan;

namespace {

// Parses a copy; checks what must hold of any outcome.
bool parse(const Words &words, Failure &failure, Blob &blob) {
    const Exact copy(words.data(), words.size());
    const bool ok = parse_blob(copy.get(), words.size() * 4, blob, failure);
    EXPECT_EQ(ok, !failure.failed());
    if (!ok) {
        EXPECT_GT(strlen(failure.message), 30u);
        EXPECT_TRUE(blob.kernels.empty() && blob.constants.empty() && blob.shared.empty());
    }
    const char *begin = (const char *)copy.get(), *end = begin + words.size() * 4;
    for (const BlobKernel &kernel : blob.kernels) {
        EXPECT_TRUE(kernel.name >= begin && kernel.name < end);
        EXPECT_NE(memchr(kernel.name, 0, (size_t)(end - kernel.name)), nullptr);
        EXPECT_TRUE((const char *)kernel.spirv >= begin && (const char *)(kernel.spirv + kernel.spirv_words) <= end);
        EXPECT_GE(kernel.spirv_words, kSpirvHeaderWords);
        EXPECT_LE((size_t)kernel.constants_begin + kernel.constants_count, blob.constants.size());
        EXPECT_LE((size_t)kernel.shared_begin + kernel.shared_count, blob.shared.size());
    }
    return ok;
}

std::string refusal(const Words &words) {
    Failure failure;
    Blob blob;
    const bool ok = parse(words, failure, blob);
    blob.release();
    return ok ? "accepted" : failure.message;
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

TEST(Blob, ReadsOneKernel) {
    const Words words = blob_words("grid3");
    Blob blob;
    Failure failure;
    ASSERT_TRUE(parse_blob(words.data(), words.size() * 4, blob, failure)) << failure.message;
    ASSERT_EQ(blob.kernels.size(), 1u);
    const BlobKernel &kernel = blob.kernels[0];
    EXPECT_STREQ(kernel.name, "_kernel_f_s0_z_zo_block_id_z");
    EXPECT_EQ(kernel.uniform_buffers, 1u);
    EXPECT_EQ(kernel.storage_buffers, 2u);
    EXPECT_EQ(kernel.constants_count, 0u);
    EXPECT_EQ(kernel.shared_count, 0u);
    EXPECT_EQ(kernel.local_size_ids[0], 0u);
    EXPECT_EQ(kernel.spirv[0], kSpirvMagic);
    EXPECT_EQ(kernel.spirv + kernel.spirv_words, words.data() + words.size());
    blob.release();
}

TEST(Blob, ReadsSeveralKernels) {
    const Words words = blob_words("multi");
    Blob blob;
    Failure failure;
    ASSERT_TRUE(parse_blob(words.data(), words.size() * 4, blob, failure)) << failure.message;
    ASSERT_EQ(blob.kernels.size(), 2u);
    EXPECT_STREQ(blob.kernels[0].name, "_kernel_g_s0_y_yo_block_id_y");
    EXPECT_STREQ(blob.kernels[1].name, "_kernel_f_s0_y_yo_block_id_y");
    EXPECT_LT(blob.kernels[0].spirv + blob.kernels[0].spirv_words, blob.kernels[1].spirv);
    blob.release();
}

TEST(Blob, ReadsDynamicSizes) {
    const Words words = blob_words("dynshared");
    Blob blob;
    Failure failure;
    ASSERT_TRUE(parse_blob(words.data(), words.size() * 4, blob, failure)) << failure.message;
    const BlobKernel &kernel = blob.kernels[0];
    ASSERT_EQ(kernel.constants_count, 4u);
    for (uint32_t i = 0; i < 4; i++) EXPECT_EQ(blob.constants[i].id, i + 1);
    ASSERT_EQ(kernel.shared_count, 1u);
    EXPECT_EQ(blob.shared[0].constant_id, 1u);
    EXPECT_EQ(blob.shared[0].element_bytes, 4u);
    EXPECT_EQ(blob.shared[0].elements, 1u);
    for (uint32_t i = 0; i < 3; i++) EXPECT_EQ(kernel.local_size_ids[i], i + 2);
    blob.release();
}

TEST(Blob, IsRefusedWhenCutAnywhereOrTooLong) {
    for (const char *name : kBlobs) {
        Words words = blob_words(name);
        ASSERT_FALSE(words.empty()) << name;
        for (size_t n = 0; n < words.size(); n++) {
            const Words cut(words.begin(), words.begin() + (ptrdiff_t)n);
            EXPECT_NE(refusal(cut), "accepted") << name << " cut at " << n;
        }
        EXPECT_EQ(refusal(words), "accepted") << name;
        words.push_back(0);
        EXPECT_TRUE(contains(refusal(words), "4 bytes after the last kernel")) << refusal(words);
    }
}

// dynshared: word 0 K, 1 S, 2 W, 3..10 name, 11 H, 12 D, 13 W, 14..21 name, 22 U, 23 B, 24 C, ...
constexpr size_t kSizeAt = 1, kNameLengthAt = 2, kHeaderAt = 11, kEntriesAt = 12, kEntryNameAt = 14, kUniformsAt = 22,
                 kStoragesAt = 23, kConstantsAt = 24;

struct Damage {
    const char *what;
    size_t at;
    uint32_t value;
    const char *says;
};

TEST(Blob, SaysWhatIsWrongAndWhere) {
    const Words words = blob_words("dynshared");
    const size_t ids_at = kHeaderAt + words[kHeaderAt] - 3, shared_at = ids_at - 3;
    const Damage damages[] = {
        {"no kernel", 0, 0, "bytes after the last kernel"},
        {"too many kernels", 0, 0xffffffffu, "byte 0: the number of kernels is 4294967295"},
        {"size not in words", kSizeAt, words[kSizeAt] + 1, "byte 4: kernel _kernel_f"},
        {"size past the end", kSizeAt, words[kSizeAt] + 4, "are left"},
        {"size too small", kSizeAt, 8, "header length"},
        {"name past the end", kNameLengthAt, 0x40000000u, "byte 8: the name of a kernel"},
        {"empty name", kNameLengthAt, 0, "not NUL-terminated"},
        {"name without end", kNameLengthAt + 8, 0x41414141u, "not NUL-terminated"},
        {"header past the end", kHeaderAt, 100000, "header length of kernel _kernel_f"},
        {"header of nothing", kHeaderAt, 0, "header length of kernel _kernel_f"},
        {"header too short", kHeaderAt, words[kHeaderAt] - 1, "byte"},
        {"header too long", kHeaderAt, words[kHeaderAt] + 1, "1 unknown words"},
        {"two entry points", kEntriesAt, 2, "byte 48: kernel _kernel_f_s0_y_yo_block_id_y has 2 entry points, only 1"},
        {"no entry point", kEntriesAt, 0, "has 0 entry points, only 1"},
        {"another entry point", kEntryNameAt, words[kEntryNameAt] + 1, "the entry point is named"},
        {"two uniform buffers", kUniformsAt, 2, "byte 88: the number of uniform buffers is 2, at most 1 allowed"},
        {"many storage buffers", kStoragesAt, 1025, "the number of storage buffers is 1025, at most 1024 allowed"},
        {"many constants", kConstantsAt, 0x10000000u, "the number of specialization constants is 268435456"},
        {"long constant", shared_at - 5, 8, "specialization constant 4 has 8 bytes, only 4 supported"},
        {"elements of no size", shared_at + 1, 0, "shared memory of 1 elements of 0 bytes"},
        {"endless shared memory", shared_at + 2, 0xffffffffu, "shared memory of 4294967295 elements of 4 bytes"},
        {"unknown shared size", shared_at, 9, "shared memory is sized by constant 9"},
        {"unknown local size", ids_at + 1, 77, "the local size in dimension 1 is constant 77"},
        {"no SPIR-V", kHeaderAt + words[kHeaderAt], 0x03022307u, "begins with 0x3022307"},
    };
    for (const Damage &damage : damages) {
        Words damaged = words;
        damaged[damage.at] = damage.value;
        EXPECT_TRUE(contains(refusal(damaged), damage.says)) << damage.what << ": " << refusal(damaged);
    }
}

TEST(Blob, RefusesNoBytesAndOddBytes) {
    const Words words = blob_words("vec");
    for (const bool null : {true, false}) {
        Blob blob;
        Failure failure;
        const char *bytes = null ? nullptr : (const char *)words.data() + 1;
        EXPECT_FALSE(parse_blob(bytes, words.size() * 4 - 4, blob, failure));
        EXPECT_EQ(failure.code, kInternalError);
        blob.release();
    }
    Blob blob;
    Failure failure;
    EXPECT_FALSE(parse_blob(words.data(), words.size() * 4 - 3, blob, failure));
    blob.release();
}

TEST(Blob, SurvivesRandomDamage) {
    std::mt19937 random(20);
    int refused = 0, accepted = 0;
    for (const char *name : kBlobs) {
        const Words words = blob_words(name);
        const size_t headers = std::min<size_t>(words.size(), 90);
        for (int round = 0; round < 3000; round++) {
            Words damaged = words;
            for (uint32_t n = 1 + random() % 3; n > 0; n--) {
                uint32_t &word = damaged[random() % headers];
                switch (random() % 4) {
                case 0: word ^= 1u << (random() % 32); break;
                case 1: word = random(); break;
                case 2: word = random() % 16; break;
                default: word = 0u - random() % 16; break;
                }
            }
            (refusal(damaged) == "accepted" ? accepted : refused)++;
        }
    }
    // Both happen: a damaged name of a constant is not noticed, a damaged count is.
    EXPECT_GT(refused, 1000);
    EXPECT_GT(accepted, 100);
}

TEST(Blob, ReportsMemoryThatIsOut) {
    const Words words = blob_words("dynshared");
    int failures = 0;
    for (int allowed = 0;; allowed++) {
        Blob blob;
        Failure failure;
        allocations_left = allowed;
        const bool ok = parse(words, failure, blob);
        allocations_left = -1;
        blob.release();
        EXPECT_EQ(allocations_alive, 0);
        if (ok) break;
        EXPECT_EQ(failure.code, kOutOfMemory);
        failures++;
    }
    EXPECT_EQ(failures, 3);  // kernels, constants, shared
}

}  // namespace
