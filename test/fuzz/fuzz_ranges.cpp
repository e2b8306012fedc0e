// The range allocator beside an interval map: what is handed out was free and whole, nothing overlaps, neighbours join,
// last uses are split and joined, and when everything is freed every block is whole again.

#include "fuzz.h"

#include <iterator>
#include <map>
#include <vector>

#include "vulkan_base.h"
#include "vulkan_ranges.h"

using namespace halide_vulkan;

namespace {

struct Span {
    uint64_t size, last_use;
    bool used;
    uint32_t id;
};
using Block = std::map<uint64_t, Span>;

struct Taken {
    uint32_t id, block;
    uint64_t offset;
};

void take(Block &block, uint64_t offset, uint64_t size, uint32_t id) {
    const auto at = block.find(offset);
    FUZZ_CHECK(at != block.end() && !at->second.used && at->second.size >= size);
    if (at->second.size > size) {
        block[offset + size] = {at->second.size - size, at->second.last_use, false, 0};
        at->second.size = size;
    }
    at->second.used = true;
    at->second.id = id;
}

void join_next(Block &block, Block::iterator low) {
    const auto high = std::next(low);
    if (high == block.end() || high->second.used) return;
    low->second.size += high->second.size;
    if (high->second.last_use > low->second.last_use) low->second.last_use = high->second.last_use;
    block.erase(high);
}

uint64_t largest_free(const std::map<uint32_t, Block> &blocks) {
    uint64_t largest = 0;
    for (const auto &b : blocks) {
        for (const auto &s : b.second) {
            if (!s.second.used && s.second.size > largest) largest = s.second.size;
        }
    }
    return largest;
}

class Run {
public:
    explicit Run(Input &in) : in(in), alignment((uint64_t)1 << in.below(9)) { ranges.init(alignment); }
    ~Run() { ranges.release(); }

    void step() {
        switch (in.below(6)) {
        case 0: return add_block();
        case 1: return free_one();
        case 2: return remove_blocks();
        case 3: return touch();
        default: return allocate();
        }
    }
    void end() {
        while (!taken.empty()) give(taken.size() - 1);
        for (const auto &b : oracle) FUZZ_CHECK(b.second.size() == 1 && ranges.block_is_free(first[b.first]));
        FUZZ_CHECK(ranges.used_bytes() == 0 && ranges.check());
    }

private:
    Input &in;
    const uint64_t alignment;
    Ranges ranges;
    std::map<uint32_t, Block> oracle;
    std::map<uint32_t, uint32_t> first;
    std::vector<Taken> taken;
    uint32_t next_block = 0;
    uint64_t epoch = 0;

    void add_block() {
        const uint64_t size = in.below((uint64_t)1 << in.below(40));
        if (oracle.size() == 8) return;
        const uint32_t id = ranges.add_block(next_block, size);
        FUZZ_CHECK((id == Ranges::kNone) == (size < alignment));
        if (id == Ranges::kNone) return;
        oracle[next_block][0] = {size & ~(alignment - 1), 0, false, 0};
        first[next_block++] = id;
    }

    void allocate() {
        const uint64_t size = in.below((uint64_t)1 << in.below(40));
        const uint64_t largest = largest_free(oracle);
        const uint32_t id = ranges.allocate(size);
        const uint64_t rounded = (size + alignment - 1) & ~(alignment - 1);
        if (id == Ranges::kNone) {
            // A class is 1/16 wide: what surely fits is found.
            FUZZ_CHECK(size == 0 || largest < rounded + rounded / 16 + 16 * alignment);
            return;
        }
        FUZZ_CHECK(size != 0 && ranges.is_used(id) && ranges.size(id) == rounded);
        take(oracle[ranges.block(id)], ranges.offset(id), rounded, id);
        taken.push_back({id, ranges.block(id), ranges.offset(id)});
    }

    void free_one() {
        if (taken.empty()) {
            FUZZ_CHECK(ranges.free(in.word()) == Ranges::kNone);
            return;
        }
        give((size_t)in.below(taken.size()));
    }
    void give(size_t index) {
        const Taken t = taken[index];
        taken[index] = taken.back();
        taken.pop_back();
        Block &block = oracle[t.block];
        auto at = block.find(t.offset);
        at->second.used = false;
        join_next(block, at);
        if (at != block.begin() && !std::prev(at)->second.used) {
            at = std::prev(at);
            join_next(block, at);
        }
        const uint32_t joined = ranges.free(t.id);
        FUZZ_CHECK(joined != Ranges::kNone && ranges.is_free(joined));
        FUZZ_CHECK(ranges.offset(joined) == at->first && ranges.size(joined) == at->second.size);
        FUZZ_CHECK(ranges.last_use(joined) == at->second.last_use);
        FUZZ_CHECK(ranges.free(t.id) == Ranges::kNone || t.id == joined);
    }

    void remove_blocks() {
        const uint32_t which = (uint32_t)in.below(8);
        for (auto b = oracle.begin(); b != oracle.end();) {
            const bool whole = b->second.size() == 1 && !b->second.begin()->second.used;
            FUZZ_CHECK(ranges.block_is_free(first[b->first]) == whole);
            if (b->first % 8 == which) {
                FUZZ_CHECK(ranges.remove_block(first[b->first]) == whole);
                if (whole) {
                    b = oracle.erase(b);
                    continue;
                }
            }
            ++b;
        }
    }

    void touch() {
        if (taken.empty()) return;
        const Taken &t = taken[(size_t)in.below(taken.size())];
        ranges.touch(t.id, ++epoch);
        oracle[t.block][t.offset].last_use = epoch;
        FUZZ_CHECK(ranges.last_use(t.id) == epoch);
    }

public:
    void check() const {
        FUZZ_CHECK(ranges.check());
        uint64_t used = 0, unused = 0;
        for (const auto &b : oracle) {
            for (const auto &s : b.second) (s.second.used ? used : unused) += s.second.size;
        }
        FUZZ_CHECK(ranges.used_bytes() == used && ranges.free_bytes() == unused);
        FUZZ_CHECK(ranges.largest_free() == largest_free(oracle));
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    Run run(in);
    for (int step = 0; step < 400 && !in.empty(); step++) {
        run.step();
        if (step % 16 == 0) run.check();  // walks all bins
    }
    run.end();
    return 0;
}
