// Arguments of a launch belong to that launch, whatever their number, order and type.
//
// Scalars of a kernel are packed into one uniform block, widest first. A second launch of the same kernel with other
// scalars, made while the first is still in flight, must not overwrite them; nor may the descriptors of a launch change
// under it. Kernels with 30 buffers and with dozens of scalars of all types are tried.
//
// A bool scalar makes Halide emit a uniform member of type bool, which the validation layer rejects although it works;
// tests that use one have Bool in their name so that the validation run can leave them out.
//
// Stock: on lavapipe fails only for sizes that are no multiple of 64 bytes.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;

TEST(GpuArguments, OtherScalarsWhileTheFirstIsInFlight) {
    Var x("x"), xi("xi");
    Param<int> a("a"), b("b");
    Func f("f");
    f(x) = x * a + b;
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({a, b}, gpu_target());
    std::vector<Words> outs;
    for (int i = 0; i < 500; i++) {
        outs.emplace_back(100 + i % 7);
        ASSERT_OK(kernel(i, -3 * i, outs[i]));
    }
    for (int i = 0; i < 500; i++) {
        outs[i].copy_to_host();
        ASSERT_TRUE(matches(outs[i], [&](const int *p) { return p[0] * i - 3 * i; })) << "launch " << i;
    }
}

TEST(GpuArguments, OtherBuffersWhileTheFirstIsInFlight) {
    Var x("x"), xi("xi");
    ImageParam p(Int(32), 1, "p"), q(Int(32), 1, "q");
    Func f("f");
    f(x) = p(x) * 2 - q(x);
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({p, q}, gpu_target());
    const int n = 77, count = 40;
    std::vector<Words> inputs, outs;
    for (int i = 0; i < count; i++) {
        inputs.emplace_back(n);
        fill(inputs[i], [&](const int *at) { return at[0] * (i + 1) + i; });
    }
    for (int i = 0; i < 300; i++) {
        outs.emplace_back(n);
        ASSERT_OK(kernel(inputs[i % count], inputs[(i * 7 + 3) % count], outs[i]));
    }
    const auto value = [](int i, int at) { return at * (i + 1) + i; };
    for (int i = 0; i < 300; i++) {
        outs[i].copy_to_host();
        ASSERT_TRUE(matches(
            outs[i], [&](const int *at) { return value(i % count, at[0]) * 2 - value((i * 7 + 3) % count, at[0]); }))
            << "launch " << i;
    }
}

// A scalar of each type, each seen alone in the result, so that a wrong offset shows which one it is.
template<typename T>
void one_scalar_of(T value, const Target &target = gpu_target()) {
    Var x("x"), xi("xi");
    Param<T> scalar("scalar");
    Func f("f");
    f(x) = cast<T>(x) + scalar;
    f.gpu_tile(x, xi, 16);
    Callable kernel = f.compile_to_callable({scalar}, target);
    Runtime::Buffer<T, 1> out(64);
    ASSERT_OK(kernel(value, out));
    out.copy_to_host();
    EXPECT_TRUE(matches(out, [&](const int *p) { return (T)((T)p[0] + value); }));
}

TEST(GpuArguments, OneScalarOfEachType) {
    one_scalar_of<int8_t>(-77);
    one_scalar_of<uint8_t>(200);
    one_scalar_of<int16_t>(-30000);
    one_scalar_of<uint16_t>(65000);
    one_scalar_of<int32_t>(-2000000000);
    one_scalar_of<uint32_t>(4000000000u);
    one_scalar_of<int64_t>(-5000000000000000000LL);
    one_scalar_of<uint64_t>(15000000000000000000ULL);
    one_scalar_of<float>(1234.5f);
}

TEST(GpuArguments, OneScalarOfDouble) {
    one_scalar_of<double>(0.1, gpu_target({Target::VulkanV13, Target::VulkanFloat64}));
}

TEST(GpuArguments, MixedScalars) {
    Var x("x"), xi("xi");
    Param<int8_t> i8("i8");
    Param<uint8_t> u8("u8");
    Param<int16_t> i16("i16");
    Param<uint16_t> u16("u16");
    Param<int32_t> i32("i32");
    Param<uint32_t> u32("u32");
    Param<int64_t> i64("i64");
    Param<uint64_t> u64("u64");
    Param<float> f32("f32");
    Param<double> f64("f64");
    Func f("f");
    const Expr values[] = {cast<int64_t>(i8),
                           cast<int64_t>(u8),
                           cast<int64_t>(i16),
                           cast<int64_t>(u16),
                           cast<int64_t>(i32),
                           cast<int64_t>(u32),
                           i64,
                           cast<int64_t>(u64),
                           cast<int64_t>(f32),
                           cast<int64_t>(f64)};
    Expr chosen = values[9];
    for (int i = 8; i >= 0; i--) chosen = select(x % 10 == i, values[i], chosen);
    f(x) = chosen;
    f.gpu_tile(x, xi, 20);
    Callable kernel =
        f.compile_to_callable({i8, u8, i16, u16, i32, u32, i64, u64, f32, f64}, gpu_target({Target::VulkanFloat64}));
    std::vector<Runtime::Buffer<int64_t, 1>> outs;
    for (int k = 0; k < 20; k++) {
        outs.emplace_back(40);
        ASSERT_OK(kernel((int8_t)(-100 + k), (uint8_t)(200 + k), (int16_t)(-30000 + k), (uint16_t)(60000 + k),
                         -2000000 + k, 4000000000u + k, (int64_t)-1 - k, (uint64_t)1000000000000 + k, 512.0f + k,
                         -4096.0 - k, outs[k]));
    }
    for (int k = 0; k < 20; k++) {
        const int64_t expected[10] = {-100 + k,         200 + k, -30000 + k,        60000 + k, -2000000 + k,
                                      4000000000LL + k, -1 - k,  1000000000000 + k, 512 + k,   -4096 - k};
        outs[k].copy_to_host();
        ASSERT_TRUE(matches(outs[k], [&](const int *p) { return expected[p[0] % 10]; })) << "launch " << k;
    }
}

TEST(GpuArguments, BoolScalarAmongOthers) {
    Var x("x"), xi("xi");
    Param<bool> first("first"), second("second");
    Param<int16_t> a("a");
    Param<int> b("b");
    Func f("f");
    f(x) = select(first, cast<int>(a), b) + select(second, 1000, 0) + x;
    f.gpu_tile(x, xi, 16);
    Callable kernel = f.compile_to_callable({first, second, a, b}, gpu_target());
    for (int k = 0; k < 4; k++) {
        Words out(64);
        ASSERT_OK(kernel((bool)(k & 1), (bool)(k & 2), (int16_t)-5, 77, out));
        out.copy_to_host();
        EXPECT_TRUE(matches(out, [&](const int *p) { return (k & 1 ? -5 : 77) + (k & 2 ? 1000 : 0) + p[0]; })) << k;
    }
}

TEST(GpuArguments, DozensOfScalars) {
    Var x("x"), xi("xi");
    const int count = 60;
    std::vector<Param<int>> scalars;
    Expr sum = x;
    for (int i = 0; i < count; i++) {
        scalars.emplace_back("s" + std::to_string(i));
        sum = sum * 3 + scalars[i];
    }
    Func f("f");
    f(x) = sum;
    f.gpu_tile(x, xi, 16);
    std::vector<Buffer<int>> outs;
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < count; i++) scalars[i].set(i * 31 + k);
        outs.emplace_back(64);
        f.realize(outs.back(), gpu_target());
    }
    for (int k = 0; k < 10; k++) {
        outs[k].copy_to_host();
        ASSERT_TRUE(matches(outs[k],
                            [&](const int *p) {
                                uint32_t expected = p[0];
                                for (int i = 0; i < count; i++) expected = expected * 3 + i * 31 + k;
                                return (int)expected;
                            }))
            << "launch " << k;
    }
}

// Up to 30 inputs and one output: each input has a weight of its own.
TEST(GpuArguments, ManyBuffers) {
    for (int count : {1, 2, 5, 15, 30}) {
        Var x("x"), xi("xi");
        std::vector<ImageParam> inputs;
        Func f("many" + std::to_string(count));
        Expr sum = 0;
        for (int i = 0; i < count; i++) {
            inputs.emplace_back(Int(32), 1, "in" + std::to_string(i));
            sum += inputs[i](x) * (i + 1);
        }
        f(x) = sum;
        f.gpu_tile(x, xi, 16, TailStrategy::GuardWithIf);
        std::vector<Buffer<int32_t>> buffers;
        for (int i = 0; i < count; i++) {
            Buffer<int32_t> buffer(50 + i);
            fill(buffer, [&](const int *p) { return p[0] + i * 100; });
            inputs[i].set(buffer);
            buffers.push_back(buffer);
        }
        std::vector<Buffer<int32_t>> outs;
        for (int launch = 0; launch < 20; launch++) {
            outs.emplace_back(50);
            f.realize(outs.back(), gpu_target());
        }
        const auto expected = [&](const int *p) {
            int total = 0;
            for (int i = 0; i < count; i++) total += (p[0] + i * 100) * (i + 1);
            return total;
        };
        for (Buffer<int32_t> &out : outs) {
            out.copy_to_host();
            ASSERT_TRUE(matches(out, expected)) << count << " inputs";
        }
    }
}

// Several outputs of several types from one kernel.
TEST(GpuArguments, TupleOfTypes) {
    Var x("x"), xi("xi");
    Param<int> salt("salt");
    Func f("f");
    f(x) = Tuple(cast<uint8_t>(x + salt), cast<int16_t>(x * 2 - salt), x * 3 + salt, cast<int64_t>(x) * 1000000 + salt,
                 cast<float>(x) / 2);
    f.gpu_tile(x, xi, 16, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({salt}, gpu_target());
    for (int n : {1, 17, 333}) {
        Runtime::Buffer<uint8_t, 1> a(n);
        Runtime::Buffer<int16_t, 1> b(n);
        Runtime::Buffer<int32_t, 1> c(n);
        Runtime::Buffer<int64_t, 1> d(n);
        Runtime::Buffer<float, 1> e(n);
        ASSERT_OK(kernel(9, a, b, c, d, e));
        a.copy_to_host(), b.copy_to_host(), c.copy_to_host(), d.copy_to_host(), e.copy_to_host();
        EXPECT_TRUE(matches(a, [](const int *p) { return p[0] + 9; }));
        EXPECT_TRUE(matches(b, [](const int *p) { return p[0] * 2 - 9; }));
        EXPECT_TRUE(matches(c, [](const int *p) { return p[0] * 3 + 9; }));
        EXPECT_TRUE(matches(d, [](const int *p) { return (int64_t)p[0] * 1000000 + 9; }));
        EXPECT_TRUE(matches(e, [](const int *p) { return p[0] / 2.0f; }));
    }
}

}  // namespace
