// Division, remainder and shifts of negative numbers round down, as on the CPU.
//
// Halide divides a signed value by a constant with shifts whose amount is unsigned, and its code generator for Vulkan
// makes those logical ones, which lose the sign.
//
// Stock: wrong for every type but the 64-bit one, whose division is left to the device; shifts by unsigned amounts are
// wrong for that too.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

constexpr int kCount = 4096;

template<typename T>
class GpuSignedDivision : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    ImageParam input{type_of<T>(), 1, "input"};
    Runtime::Buffer<T, 1> in{kCount};

    void SetUp() override {
        fill(in, [](const int *p) {
            const int64_t some =
                (int64_t)((uint64_t)scramble((uint32_t)p[0]) << 32 | scramble((uint32_t)p[0] + kCount));
            if (p[0] == 0) return std::numeric_limits<T>::min();
            if (p[0] == 1) return std::numeric_limits<T>::max();
            return (T)(p[0] < 200 ? p[0] - 100 : some >> (p[0] % (8 * sizeof(T))));
        });
    }
    // With 1 and with 4 elements a thread: vectors are another type in SPIR-V.
    template<typename Wanted>
    void expect(const Expr &value, const std::string &what, Wanted &&wanted) {
        for (const bool vector : {false, true}) {
            Func f("f");
            f(x) = value;
            f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
            if (vector) f.vectorize(xi, 4);
            Callable kernel = f.compile_to_callable({input}, gpu_target());
            Runtime::Buffer<T, 1> out(kCount);
            ASSERT_OK(kernel(in, out));
            ASSERT_OK(out.copy_to_host());
            EXPECT_TRUE(matches(out, [&](const int *p) { return wanted(in(p[0]), p[0]); }))
                << what << (vector ? ", vectors" : "");
        }
    }
    // Towards minus infinity, as Halide divides. By something positive: what a negative divisor gives is another matter
    // (the remainder is never negative).
    static T quotient(T a, T b) { return (T)(a / b - (a % b < 0)); }
};

using Types = ::testing::Types<int8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(GpuSignedDivision, Types, );

TYPED_TEST(GpuSignedDivision, ByConstants) {
    using T = TypeParam;
    for (const int by : {1, 2, 3, 7, 9, 10, 64, 100}) {
        const T b = (T)by;
        const Expr a = this->input(this->x), divisor = cast<T>(by);
        this->expect(a / divisor, "/ " + std::to_string(by), [&](T value, int) { return this->quotient(value, b); });
        this->expect(a % divisor, "% " + std::to_string(by),
                     [&](T value, int) { return (T)(value - this->quotient(value, b) * b); });
    }
}

TYPED_TEST(GpuSignedDivision, ShiftsKeepTheSign) {
    using T = TypeParam;
    for (const int by : {0, 1, 3, (int)sizeof(T) * 8 - 1}) {
        const Expr a = this->input(this->x), amount = cast(type_of<T>().with_code(halide_type_uint), by);
        this->expect(a >> amount, ">> unsigned " + std::to_string(by), [&](T value, int) { return (T)(value >> by); });
        this->expect(a >> cast<T>(by), ">> " + std::to_string(by), [&](T value, int) { return (T)(value >> by); });
    }
    // Another amount for each element.
    const Expr amount = cast(type_of<T>().with_code(halide_type_uint), this->x % 7);
    this->expect(this->input(this->x) >> amount, ">> x % 7", [&](T value, int at) { return (T)(value >> at % 7); });
}

}  // namespace
