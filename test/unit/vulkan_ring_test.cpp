// The staging ring against an oracle that owns every byte: no piece overlaps a live one, everything comes back, and a
// reservation is refused only when there is no room.

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "vulkan_base.h"
#include "vulkan_ring.h"

using namespace halide_vulkan;

namespace {

struct Piece {
    uint64_t offset, bytes;
    uint32_t ticket;
    uint64_t epoch;
    enum { held, published, cancelled } state;
};

uint64_t must_reserve(Ring &ring, uint64_t bytes, uint32_t *ticket) {
    uint64_t offset = ~0ull;
    EXPECT_TRUE(ring.reserve(bytes, &offset, ticket));
    return offset;
}

}  // namespace

TEST(Ring, GivesOffsetsInOrderAndWraps) {
    Ring ring;
    ring.reset(1024, 16);
    uint32_t a, b, c;
    uint64_t offset;
    EXPECT_EQ(must_reserve(ring, 500, &a), 0u);
    EXPECT_EQ(must_reserve(ring, 400, &b), 512u);
    EXPECT_EQ(ring.in_use(), 912u);
    EXPECT_EQ(ring.room(), 112u);
    EXPECT_FALSE(ring.reserve(113, &offset, &c));
    ring.publish(a, 1);
    ring.publish(b, 2);
    ring.retire(1);
    EXPECT_EQ(ring.in_use(), 400u);
    EXPECT_EQ(ring.room(), 512u);
    EXPECT_EQ(must_reserve(ring, 500, &c), 0u);  // 112 bytes at the end are skipped
    EXPECT_EQ(ring.in_use(), 400u + 112u + 512u);
    EXPECT_EQ(ring.room(), 0u);
    ring.publish(c, 3);
    ring.retire(3);
    EXPECT_EQ(ring.in_use(), 0u);
    EXPECT_EQ(ring.room(), 1024u);
}

TEST(Ring, OnePieceMayTakeAllOfIt) {
    Ring ring;
    ring.reset(1000, 64);  // rounded down to 960
    EXPECT_EQ(ring.size(), 960u);
    uint32_t t = 0;
    uint64_t offset;
    EXPECT_FALSE(ring.reserve(961, &offset, &t));
    EXPECT_FALSE(ring.reserve(UINT64_MAX, &offset, &t));
    // Whatever was there before, an empty ring has all its room in one piece.
    for (int i = 0; i < 20; i++) {
        must_reserve(ring, 64 * (1 + i % 7), &t);
        ring.publish(t, 1);
        ring.retire(1);
        EXPECT_EQ(must_reserve(ring, 960, &t), 0u);
        ring.cancel(t);
    }
    EXPECT_EQ(ring.in_use(), 0u);
}

TEST(Ring, WithoutCapacityItRefusesEverything) {
    Ring ring;
    uint32_t t;
    uint64_t offset, epoch;
    EXPECT_FALSE(ring.reserve(0, &offset, &t));
    ring.reset(15, 16);
    EXPECT_FALSE(ring.reserve(1, &offset, &t));
    EXPECT_FALSE(ring.oldest(&epoch));
    EXPECT_EQ(ring.room(), 0u);
}

TEST(Ring, OldestIsKnownOnlyWhenPublished) {
    Ring ring;
    ring.reset(1024, 16);
    uint64_t epoch = 99;
    uint32_t a, b;
    EXPECT_FALSE(ring.oldest(&epoch));
    must_reserve(ring, 16, &a);
    must_reserve(ring, 16, &b);
    ring.publish(b, 7);
    EXPECT_FALSE(ring.oldest(&epoch));
    ring.retire(100);  // the oldest is still being filled: nothing may come back
    EXPECT_EQ(ring.in_use(), 32u);
    ring.publish(a, 8);
    ASSERT_TRUE(ring.oldest(&epoch));
    EXPECT_EQ(epoch, 8u);
    ring.retire(7);  // b is done but stands behind a
    EXPECT_EQ(ring.in_use(), 32u);
    ring.retire(8);
    EXPECT_EQ(ring.in_use(), 0u);
}

TEST(Ring, CancelledPiecesComeBackAtBothEnds) {
    Ring ring;
    ring.reset(1024, 16);
    uint32_t a, b, c;
    must_reserve(ring, 16, &a);
    must_reserve(ring, 32, &b);
    must_reserve(ring, 64, &c);
    ring.cancel(b);  // in the middle
    EXPECT_EQ(ring.in_use(), 112u);
    ring.cancel(c);  // the newest takes b along
    EXPECT_EQ(ring.in_use(), 16u);
    must_reserve(ring, 32, &b);
    ring.cancel(a);  // the oldest
    EXPECT_EQ(ring.in_use(), 32u);
    ring.cancel(a);  // a dead ticket does nothing
    ring.publish(a, 1);
    EXPECT_EQ(ring.in_use(), 32u);
    ring.cancel(b);
    EXPECT_EQ(ring.in_use(), 0u);
}

TEST(Ring, ManySmallPiecesOfOneBatchTakeOneEntry) {
    Ring ring;
    ring.reset(1 << 20, 16);
    uint32_t t = 0;
    for (int i = 0; i < 5000; i++) {
        must_reserve(ring, 16, &t);
        ring.publish(t, 1 + i / 2500);
    }
    ring.retire(1);
    EXPECT_EQ(ring.in_use(), 2500u * 16);
    ring.retire(2);
    EXPECT_EQ(ring.in_use(), 0u);
}

TEST(Ring, FullOfEntriesItSaysNoRoom) {
    Ring ring;
    ring.reset(1 << 20, 16);
    uint32_t t, first = 0;
    uint64_t offset;
    for (uint32_t i = 0; i < 256; i++) {
        must_reserve(ring, 16, &t);
        if (i == 0) first = t;
        ring.publish(t, i + 1);
    }
    EXPECT_FALSE(ring.reserve(16, &offset, &t));
    EXPECT_EQ(ring.room(), 0u);
    uint64_t epoch;
    ASSERT_TRUE(ring.oldest(&epoch));
    EXPECT_EQ(epoch, 1u);
    ring.retire(1);
    must_reserve(ring, 16, &t);
    EXPECT_EQ(t - first, 256u);
}

// Random reservations, some held for long, published out of order or cancelled; completion lags behind.
TEST(Ring, MatchesAnOracleThatOwnsEveryByte) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 40; round++) {
        const uint64_t alignment = 1ull << (random() % 7);
        const uint64_t units = 1 + random() % 200, capacity = units * alignment;
        Ring ring;
        ring.reset(capacity + random() % alignment, alignment);
        std::vector<int> owner(capacity, -1);
        std::deque<Piece> pieces;
        uint64_t next_epoch = 1, completed = 0;
        int serial = 0;
        uint64_t refused = 0, given = 0;
        const auto give_back = [&](const Piece &p) {
            for (uint64_t i = p.offset; i < p.offset + p.bytes; i++) owner[i] = -1;
        };
        // What may come back by the contract: from the oldest, and cancelled ones from the newest.
        const auto settle = [&](bool retire) {
            while (!pieces.empty() && pieces.back().state == Piece::cancelled) {
                give_back(pieces.back());
                pieces.pop_back();
            }
            while (!pieces.empty() &&
                   (pieces.front().state == Piece::cancelled ||
                    (retire && pieces.front().state == Piece::published && pieces.front().epoch <= completed))) {
                give_back(pieces.front());
                pieces.pop_front();
            }
        };
        for (int step = 0; step < 5000; step++) {
            const uint64_t dice = random() % 10;
            if (dice < 5) {
                const uint64_t bytes = random() % 4 == 0 ? random() % (capacity + 2) : random() % (capacity / 8 + 2);
                uint64_t offset = 0;
                uint32_t ticket = 0;
                const uint64_t room = ring.room();
                const bool ok = ring.reserve(bytes, &offset, &ticket);
                const uint64_t need = (std::max<uint64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
                ASSERT_EQ(ok, bytes <= capacity && need <= room);
                if (!ok) {
                    refused++;
                    // Refused rightly: neither between the newest piece and the end or the oldest, nor before it.
                    if (pieces.empty()) {
                        ASSERT_GT(bytes, capacity);
                    } else if (bytes <= capacity && pieces.size() < 256) {
                        const uint64_t head = (pieces.back().offset + pieces.back().bytes) % capacity;
                        uint64_t ahead = 0;
                        while (head + ahead < capacity && owner[head + ahead] < 0) ahead++;
                        ASSERT_LT(ahead, need);
                        if (head + ahead == capacity) {
                            uint64_t start = 0;
                            while (start < capacity && owner[start] < 0) start++;
                            ASSERT_LT(start, need);
                        }
                    }
                } else {
                    given++;
                    ASSERT_EQ(offset % alignment, 0u);
                    ASSERT_LE(offset + need, capacity);
                    for (uint64_t i = offset; i < offset + need; i++) {
                        ASSERT_EQ(owner[i], -1);
                        owner[i] = serial;
                    }
                    serial++;
                    pieces.push_back({offset, need, ticket, 0, Piece::held});
                }
            } else if (dice < 9) {
                std::vector<size_t> held;
                for (size_t i = 0; i < pieces.size(); i++) {
                    if (pieces[i].state == Piece::held) held.push_back(i);
                }
                if (held.empty()) continue;
                Piece &p = pieces[held[random() % std::min<size_t>(held.size(), 3)]];
                if (random() % 8 == 0) {
                    p.state = Piece::cancelled;
                    ring.cancel(p.ticket);
                    settle(false);
                } else {
                    if (random() % 3 == 0) next_epoch++;
                    p.state = Piece::published;
                    p.epoch = next_epoch;
                    ring.publish(p.ticket, next_epoch);
                }
            } else {
                completed += random() % (next_epoch - completed + 1);
                ring.retire(completed);
                settle(true);
            }
            uint64_t epoch = 0;
            const bool known = ring.oldest(&epoch);
            ASSERT_EQ(known, !pieces.empty() && pieces.front().state == Piece::published);
            if (known) {
                ASSERT_EQ(epoch, pieces.front().epoch);
            }
            uint64_t live = 0;
            for (const Piece &p : pieces) live += p.bytes;
            ASSERT_GE(ring.in_use(), live);
            ASSERT_LE(ring.in_use(), capacity);
            if (pieces.empty()) {
                ASSERT_EQ(ring.in_use(), 0u);
            }
        }
        for (Piece &p : pieces) {
            if (p.state == Piece::held) ring.publish(p.ticket, next_epoch);
        }
        ring.retire(next_epoch);
        ASSERT_EQ(ring.in_use(), 0u);
        ASSERT_GT(given, 100u);
        ASSERT_GT(refused, 0u);
    }
}
