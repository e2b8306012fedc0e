// The hazard tracker beside an oracle that remembers, for every byte of a few small memories, whether it was read or
// written since the last barrier. A missing barrier is a wrong result; an unneeded one is allowed only where ranges do
// not fit into the tracker.

#include "fuzz.h"

#include <string.h>

#include <vector>

#include "vulkan_base.h"
#include "vulkan_hazards.h"

using namespace halide_vulkan;

namespace {

constexpr uint32_t kMemories = 3;
constexpr uint64_t kBytes = 512;
// Fewer ranges than this surely fit (vulkan_hazards.h holds 32 and 64).
constexpr int kSurelyFit = 32;

class Oracle {
public:
    bool conflicts(const std::vector<Access> &command) const {
        for (const Access &a : command) {
            for (uint64_t i = a.begin; i < a.end; i++) {
                if (written[a.memory][i] || (a.write && read[a.memory][i])) return true;
            }
        }
        return false;
    }
    void note(const std::vector<Access> &command) {
        for (const Access &a : command) {
            if (a.begin < a.end) accesses++;
            for (uint64_t i = a.begin; i < a.end; i++) (a.write ? written : read)[a.memory][i] = 1;
        }
    }
    void barrier() {
        memset(read, 0, sizeof(read));
        memset(written, 0, sizeof(written));
        accesses = 0;
    }
    int accesses = 0;  // since the barrier

private:
    uint8_t read[kMemories][kBytes] = {}, written[kMemories][kBytes] = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    Hazards hazards;
    Oracle oracle;
    for (int i = 0; i < 300 && !in.empty(); i++) {
        const uint64_t kind = in.below(20);
        if (kind == 0) {
            hazards.clear();
            oracle.barrier();
            continue;
        }
        std::vector<Access> command((size_t)(kind == 1 ? in.below(150) : in.below(6)));
        for (Access &a : command) {
            const uint32_t what = in.byte();
            a.memory = what % kMemories;
            a.write = what & 128;
            a.begin = in.below(kBytes);
            a.end = what & 64 ? a.begin + in.below(4) : in.below(kBytes + 1);
            if (a.end > kBytes) a.end = kBytes;
        }
        const bool must = oracle.conflicts(command);
        const bool asked = hazards.add(command.data(), command.size());
        if (must) FUZZ_CHECK(asked);
        const bool fits = oracle.accesses + (int)command.size() < kSurelyFit;
        if (!must && fits) FUZZ_CHECK(!asked);
        if (asked) oracle.barrier();
        oracle.note(command);
    }
    return 0;
}
