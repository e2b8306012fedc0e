// bench_pipelines.h: the pipelines that the benchmark launches, and what they must compute.
//
// All work on 64 x 64 x 4 floats (64 KiB), which any GPU does in a few microseconds: what is left is the cost of asking
// for it. Values are small whole numbers, so every sum is exact and is compared with ==. Each pipeline takes a scalar
// that the caller changes with every launch; a runtime that lets a later launch overwrite the scalars of an earlier
// one, or that loses the last one, gives a wrong picture.
//
// All bounds are fixed, so a kernel has one or two scalars. With free bounds there are 18, 72 bytes, and stock Halide
// 21 loses the last eight of them on a device with 64 bytes of alignment: its figures would be those of a wrong result.
//
// The pipelines are Callables: the leanest way Halide has to call JIT code, so that Halide's own share stays small
// (0.2 us), and one that several threads may call at once.

#ifndef HALIDE_VULKAN_BENCH_PIPELINES_H
#define HALIDE_VULKAN_BENCH_PIPELINES_H

#include <Halide.h>

namespace bench {

using Halide::Buffer;
using Halide::Callable;
using Halide::Expr;
using Halide::Func;
using Halide::ImageParam;
using Halide::Param;
using Halide::Target;
using Halide::Var;

constexpr int kWidth = 64, kHeight = 64, kChannels = 4;
constexpr int kTile = 16;  // 256 threads a group: within every device's limits

inline Buffer<float> small_image() { return Buffer<float>(kWidth, kHeight, kChannels); }

// Says that an input or an output is exactly small_image(): from 0, dense, of this size.
template<typename ImageOrFunc>
void fix_bounds(ImageOrFunc image) {
    const int extents[] = {kWidth, kHeight, kChannels};
    int stride = 1;
    for (int i = 0; i < 3; i++) {
        image.dim(i).set_bounds(0, extents[i]).set_stride(stride);
        stride *= extents[i];
    }
}

inline float input_at(int x, int y, int c) { return float((x * 7 + y * 13 + c * 31) % 251); }

inline void fill_input(Buffer<float> &image) {
    image.for_each_element([&](int x, int y, int c) { image(x, y, c) = input_at(x, y, c); });
}

// The scalar of the i-th launch.
inline float offset_of(int i) { return float(i % 1021); }

// out = 2 * in + offset
struct Plain {
    Callable call;
    explicit Plain(const Target &target) {
        ImageParam in(Halide::Float(32), 3);
        Param<float> offset;
        Func out("plain");
        Var x, y, c, xo, yo, co, xi, yi, ci;
        out(x, y, c) = in(x, y, c) * 2.0f + offset;
        out.gpu_tile(x, y, c, xo, yo, co, xi, yi, ci, kTile, kTile, 1);
        fix_bounds(in);
        fix_bounds(out.output_buffer());
        call = out.compile_to_callable({in, offset}, target);
    }
    static float expected(int x, int y, int c, float offset) { return input_at(x, y, c) * 2.0f + offset; }
};

// The same with a tile of the input staged in shared memory, read by two threads each.
struct Shared {
    Callable call;
    explicit Shared(const Target &target) {
        ImageParam in(Halide::Float(32), 3);
        Param<float> offset;
        Func staged("staged"), out("shared");
        Var x, y, c, xo, yo, co, xi, yi, ci;
        staged(x, y, c) = in(Halide::min(x, kWidth - 1), y, c) + offset;
        out(x, y, c) = staged(x, y, c) + staged(x + 1, y, c);
        out.gpu_tile(x, y, c, xo, yo, co, xi, yi, ci, kTile, kTile, 1);
        staged.compute_at(out, xo).store_in(Halide::MemoryType::GPUShared).gpu_threads(x, y);
        fix_bounds(in);
        fix_bounds(out.output_buffer());
        call = out.compile_to_callable({in, offset}, target);
    }
    static float expected(int x, int y, int c, float offset) {
        return input_at(x, y, c) + input_at(std::min(x + 1, kWidth - 1), y, c) + 2 * offset;
    }
};

// As Plain, but the size of a workgroup is an argument.
struct Dynamic {
    Callable call;
    explicit Dynamic(const Target &target) {
        ImageParam in(Halide::Float(32), 3);
        Param<float> offset;
        Param<int> tile;
        Func out("dynamic");
        Var x, y, c, xo, yo, xi, yi;
        out(x, y, c) = in(x, y, c) * 2.0f + offset;
        out.tile(x, y, xo, yo, xi, yi, tile, tile).gpu_blocks(xo, yo, c).gpu_threads(xi, yi);
        fix_bounds(in);
        fix_bounds(out.output_buffer());
        call = out.compile_to_callable({in, offset, tile}, target);
    }
};

// Four kernels, each of which needs the one before it; three intermediates live and die within a call.
struct Chain {
    Callable call;
    explicit Chain(const Target &target) {
        ImageParam in(Halide::Float(32), 3);
        Param<float> offset;
        Func stage[4] = {Func("stage0"), Func("stage1"), Func("stage2"), Func("stage3")};
        Var x, y, c;
        stage[0](x, y, c) = in(x, y, c) + offset;
        stage[1](x, y, c) = stage[0](x, y, c) + 1.0f;
        stage[2](x, y, c) = stage[1](x, y, c) * 2.0f;
        stage[3](x, y, c) = stage[2](x, y, c) - offset;
        for (Func &f : stage) {
            Var xo, yo, co, xi, yi, ci;
            f.compute_root().gpu_tile(x, y, c, xo, yo, co, xi, yi, ci, kTile, kTile, 1);
        }
        fix_bounds(in);
        fix_bounds(stage[3].output_buffer());
        call = stage[3].compile_to_callable({in, offset}, target);
    }
    static float expected(int x, int y, int c, float offset) {
        return (input_at(x, y, c) + offset + 1.0f) * 2.0f - offset;
    }
};

// A kernel that keeps the device busy as long as wanted: out(x) is a linear congruential generator started at x and
// stepped outer * kInner times, one dependent step after another. The loop is nested so that the number of steps may
// exceed 32 bits.
struct Busy {
    Callable call;
    static constexpr int kInner = 1024;
    static constexpr uint32_t kMultiply = 1664525u, kAdd = 1013904223u;
    explicit Busy(const Target &target) {
        Param<int> outer;
        Param<uint32_t> zero;  // unknown to the compiler: keeps the loop variable in the expression, and so the loop
        Func out("busy");
        Var x, xo, xi;
        out(x) = Halide::cast<uint32_t>(x);
        Halide::RDom r(0, kInner, 0, outer);
        out(x) = out(x) * Expr(kMultiply) + Expr(kAdd) + Halide::cast<uint32_t>(r.x) * zero;
        out.gpu_tile(x, xo, xi, 32);
        out.update().gpu_tile(x, xo, xi, 32);
        call = out.compile_to_callable({outer, zero}, target);
    }
    // The same number of steps by squaring: n steps of x -> a x + c are one step of x -> a' x + c'.
    static uint32_t expected(uint32_t x, uint64_t steps) {
        uint32_t a = kMultiply, c = kAdd, total_a = 1, total_c = 0;
        for (; steps; steps >>= 1) {
            if (steps & 1) {
                total_a *= a;
                total_c = total_c * a + c;
            }
            c = c * a + c;
            a *= a;
        }
        return x * total_a + total_c;
    }
};

}  // namespace bench

#endif
