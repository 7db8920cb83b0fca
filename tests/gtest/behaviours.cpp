// A GoogleTest program whose tests do everything that a test can do: what the gtest executor is tested against.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <stdexcept>
#include <thread>

#include "gonogo_dump.hpp"

namespace {

bool allclose(double) { return false; }

int ran_before = 0;  // what a test leaves behind for the next one in the same process

TEST(Plain, Passes) { ++ran_before; }

TEST(Plain, FailsThreeTimesOnOneExpression) {
    for (double max_diff : {0.25, 0.75, 0.5}) {
        EXPECT_TRUE(allclose(max_diff)) << "max_diff=" << max_diff;
    }
}

TEST(Plain, FailsOnTwoExpressions) {
    EXPECT_EQ(1 + 1, 3);
    EXPECT_NEAR(1.0, 1.5, 0.125);
}

TEST(Plain, SkipsItself) { GTEST_SKIP() << "needs two devices"; }

TEST(Plain, DISABLED_IsDisabled) { FAIL(); }

TEST(Plain, RecordsNumbers) {
    RecordProperty("max_abs", "0.0625");
    RecordProperty("tiles", 265);
    RecordProperty("kernel", "layernorm_bw");
    std::cout << "worker core (x=0,y=0) pcc=0.9995 max_diff: 1e-3" << std::endl;
    std::cout << "no line break at the end";
}

TEST(Plain, Throws) { throw std::runtime_error("the device is busy"); }

TEST(Order, First) { ran_before += 10; }

TEST(Order, NeedsFirst) { EXPECT_GE(ran_before, 10); }

TEST(Order, Flickers) {
    // Which seed it fails on is fixed: green and red alternate from one iteration to the next
    EXPECT_EQ(gonogo::seed() % 2, 0u);
}

class WithParameter : public testing::TestWithParam<int> {};
TEST_P(WithParameter, IsPositive) { EXPECT_GT(GetParam(), 0); }
INSTANTIATE_TEST_SUITE_P(Numbers, WithParameter, testing::Values(0, 1));

TEST(BadCrash, Before) {}
TEST(BadCrash, Segfaults) {
    std::cout << "about to crash" << std::endl;
    std::raise(SIGSEGV);
}
TEST(BadCrash, After) {}

TEST(BadExit, LeavesInTheMiddle) { std::exit(0); }

TEST(BadHang, Before) {}
TEST(BadHang, Spins) {
    std::cout << "waiting for the reader kernel" << std::endl;
    std::this_thread::sleep_for(std::chrono::hours(1));
}
TEST(BadHang, After) {}

class BadEnd : public testing::Test {
protected:
    static void TearDownTestSuite() { std::atexit([] { std::raise(SIGABRT); }); }
};
TEST_F(BadEnd, CrashesAtTheEnd) {}

TEST(Noise, PrintsTheMarksOfAnother) {
    std::cout << "[       OK ] Plain.Throws (0 ms)\n[ RUN      ] Invented.Test\n[       OK ] Invented.Test (0 ms)" << std::endl;
}

}  // namespace
