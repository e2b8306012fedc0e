// The staging ring beside an oracle that knows the owner of every byte: no piece overlaps one that is still needed,
// everything comes back, and a reservation is refused only where no contiguous room is left.

#include "fuzz.h"

#include <vector>

#include "vulkan_base.h"
#include "vulkan_ring.h"

using namespace halide_vulkan;

namespace {

struct Piece {
    uint64_t offset, bytes, epoch;
    uint32_t ticket;
    enum { held, published, cancelled } state;
};

class Run {
public:
    explicit Run(Input &in) : in(in) {
        const uint64_t alignment = (uint64_t)1 << in.below(7);
        capacity = in.below(2048);
        ring.reset(capacity, alignment);
        capacity &= ~(alignment - 1);
        unit = alignment;
        FUZZ_CHECK(ring.size() == capacity);
        owner.assign((size_t)capacity, 0);
    }

    void step() {
        switch (in.below(5)) {
        case 0: return end_one(Piece::published);
        case 1: return end_one(Piece::cancelled);
        case 2: return retire();
        default: return reserve();
        }
    }
    void end() {
        for (size_t i = 0; i < pieces.size(); i++) {
            if (pieces[i].state == Piece::held) ring.publish(pieces[i].ticket, epoch);
        }
        ring.retire(epoch);
        FUZZ_CHECK(ring.in_use() == 0);
        uint64_t offset;
        uint32_t ticket;
        if (capacity > 0) FUZZ_CHECK(ring.reserve(capacity, &offset, &ticket) && offset == 0);
    }

private:
    Input &in;
    uint64_t capacity, unit, epoch = 1, completed = 0;
    Ring ring;
    std::vector<Piece> pieces;   // in the order of their reservation
    std::vector<uint8_t> owner;  // per byte: 1 while somebody needs it

    void mark(const Piece &p, uint8_t value) {
        for (uint64_t i = p.offset; i < p.offset + p.bytes; i++) {
            FUZZ_CHECK(owner[(size_t)i] != value);
            owner[(size_t)i] = value;
        }
    }

    void reserve() {
        const uint64_t bytes = in.below(capacity + 2), room = ring.room();
        Piece p = {0, ((bytes ? bytes : 1) + unit - 1) & ~(unit - 1), 0, 0, Piece::held};
        const bool done = ring.reserve(bytes, &p.offset, &p.ticket);
        FUZZ_CHECK(done == (bytes <= capacity && capacity > 0 && p.bytes <= room));
        if (!done) return;
        FUZZ_CHECK(p.offset % unit == 0 && p.offset + p.bytes <= capacity);
        mark(p, 1);
        pieces.push_back(p);
    }

    void end_one(decltype(Piece::held) state) {
        if (pieces.empty()) return;
        Piece &p = pieces[(size_t)in.below(pieces.size())];
        if (p.state != Piece::held) return;  // its ticket is dead, and may be another piece's by now
        if (state == Piece::published) {
            if (in.below(3) == 0) epoch++;
            ring.publish(p.ticket, epoch);
            p.epoch = epoch;
        } else {
            ring.cancel(p.ticket);
        }
        p.state = state;
        drop_cancelled_ends();
    }

    // The contract: cancelled pieces come back when they are the oldest or the newest.
    void drop_cancelled_ends() {
        while (!pieces.empty() && pieces.back().state == Piece::cancelled) {
            mark(pieces.back(), 0);
            pieces.pop_back();
        }
        while (!pieces.empty() && pieces.front().state == Piece::cancelled) drop_oldest();
    }
    void drop_oldest() {
        mark(pieces.front(), 0);
        pieces.erase(pieces.begin());
    }

    void retire() {
        completed += in.below(3);
        if (completed > epoch) completed = epoch;
        ring.retire(completed);
        while (!pieces.empty()) {
            const Piece &p = pieces.front();
            if (p.state == Piece::held || (p.state == Piece::published && p.epoch > completed)) break;
            drop_oldest();
        }
        uint64_t oldest;
        const bool known = ring.oldest(&oldest);
        FUZZ_CHECK(known == (!pieces.empty() && pieces.front().state == Piece::published));
        if (known) FUZZ_CHECK(oldest >= pieces.front().epoch && oldest > completed);
    }

public:
    void check() const {
        uint64_t needed = 0;
        for (uint8_t o : owner) needed += o;
        FUZZ_CHECK(ring.in_use() >= needed);
        FUZZ_CHECK(ring.in_use() <= capacity);
        FUZZ_CHECK(ring.room() <= capacity - ring.in_use());
        if (pieces.empty()) FUZZ_CHECK(ring.in_use() == 0 && ring.room() == capacity);
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in(data, size);
    Run run(in);
    for (int step = 0; step < 600 && !in.empty(); step++) {
        run.step();
        run.check();
    }
    run.end();
    return 0;
}
