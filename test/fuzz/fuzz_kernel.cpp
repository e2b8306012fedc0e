// Kernel blobs and SPIR-V that were changed at random: what is refused is refused with a message, and what is accepted
// is read within its bounds, patched, and read again. A module that the validator of the SPIR-V tools calls valid must
// stay valid when it is patched; that is what makes a patch right rather than merely harmless.
//
// An input that begins with SPIR-V's magic number is a module, any other a blob. Mutations work on words: an id, a word
// count or an opcode is replaced, instructions are copied and dropped; bytes alone would seldom get past the first
// count.

#include "fuzz.h"

#include <string.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <spirv-tools/libspirv.h>

#include "vulkan_base.h"

#include "vulkan_blob.h"
#include "vulkan_spirv.h"
#include "vulkan_spirv_patch.h"

using namespace halide_vulkan;

namespace {

bool is_valid(spv_target_env environment, const uint32_t *words, size_t count) {
    const spv_context context = spvContextCreate(environment);
    spv_const_binary_t binary = {words, count};
    const bool valid = spvValidate(context, &binary, nullptr) == SPV_SUCCESS;
    spvContextDestroy(context);
    return valid;
}

void check_module(const uint32_t *words, size_t count) {
    SpirvInfo info;
    Failure failure;
    const bool good = read_spirv(words, count, info, failure);
    FUZZ_CHECK(good == !failure.failed());
    if (!good) return;
    FUZZ_CHECK(strlen(info.entry_point) < count * 4);
    FUZZ_CHECK(info.relocatable != (info.why_not != nullptr));
    for (size_t i = 1; i < info.buffers.size(); i++) FUZZ_CHECK(info.buffers[i - 1].binding < info.buffers[i].binding);

    const spv_target_env environments[] = {SPV_ENV_UNIVERSAL_1_5, SPV_ENV_VULKAN_1_1};
    bool valid[2];
    for (int e = 0; e < 2; e++) valid[e] = is_valid(environments[e], words, count);
    for (const bool relocate : {false, true}) {
        if (relocate && !info.relocatable) continue;
        const SpirvPatch patch = {{8, 4, 2}, relocate};
        Array<uint32_t> patched;
        Failure why;
        const bool done = patch_spirv(words, count, info, patch, patched, why);
        FUZZ_CHECK(done == !why.failed());
        if (done) {
            for (int e = 0; e < 2; e++) {
                if (valid[e]) FUZZ_CHECK(is_valid(environments[e], patched.data(), patched.size()));
            }
            SpirvInfo again;
            const bool readable = read_spirv(patched.data(), patched.size(), again, why);
            if (valid[0] || valid[1]) {
                FUZZ_CHECK(readable && again.buffers.size() == info.buffers.size());
                FUZZ_CHECK(!again.local_size_is_ids && again.local_size[0] == 8 && again.local_size[2] == 2);
            }
            if (readable) again.release();
        } else {
            FUZZ_CHECK(!(valid[0] || valid[1]) || patched.empty());
        }
        patched.release();
    }
    info.release();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // A copy whose end is known to the address sanitizer, and whose words are aligned.
    const size_t count = size / 4;
    const std::unique_ptr<uint32_t[]> words(new uint32_t[count + 1]);
    memcpy(words.get(), data, size);
    uint32_t magic = 0;
    if (count) magic = words[0];
    if (magic == kSpirvMagic) {
        const std::unique_ptr<uint32_t[]> exact(new uint32_t[count]);
        memcpy(exact.get(), words.get(), count * 4);
        check_module(exact.get(), count);
        return 0;
    }
    const std::unique_ptr<uint8_t, decltype(&free)> exact((uint8_t *)malloc(size ? size : 1), &free);
    memcpy(exact.get(), data, size);
    Blob blob;
    Failure failure;
    const bool good = parse_blob(exact.get(), size, blob, failure);
    FUZZ_CHECK(good == !failure.failed());
    if (good) {
        for (const BlobKernel &kernel : blob.kernels) {
            FUZZ_CHECK((const uint8_t *)(kernel.spirv + kernel.spirv_words) <= exact.get() + size);
            FUZZ_CHECK(strlen(kernel.name) < size);
            check_module(kernel.spirv, kernel.spirv_words);
        }
    }
    blob.release();
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    std::minstd_rand random(seed);
    if (size < 8 || random() % 4 == 0) return LLVMFuzzerMutate(data, size, most);
    std::vector<uint32_t> words(size / 4);
    memcpy(words.data(), data, words.size() * 4);
    for (unsigned n = 1 + random() % 3; n > 0; n--) {
        const size_t at = random() % words.size(), other = random() % words.size();
        switch (random() % 7) {
        case 0: words[at] = random() % 64; break;
        case 1: words[at] = words[other]; break;
        case 2: words[at] += random() % 2 ? 1 : (uint32_t)-1; break;
        case 3: words[at] = (words[at] & 0xffff0000u) | random() % 400; break;    // an opcode
        case 4: words[at] = (words[at] & 0xffffu) | (random() % 8) << 16; break;  // a word count
        case 5: {  // an instruction, or what looks like one, twice
            const size_t length = std::min<size_t>(1 + random() % 6, words.size() - at);
            const std::vector<uint32_t> part(words.begin() + (long)at, words.begin() + (long)(at + length));
            words.insert(words.begin() + (long)other, part.begin(), part.end());
            break;
        }
        default: {
            const size_t length = std::min<size_t>(1 + random() % 6, words.size() - at);
            if (words.size() > length + 2) words.erase(words.begin() + (long)at, words.begin() + (long)(at + length));
        }
        }
    }
    const size_t bytes = std::min(words.size() * 4, most & ~(size_t)3);
    memcpy(data, words.data(), bytes);
    return bytes;
}
