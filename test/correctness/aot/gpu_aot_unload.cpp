// A library with an ahead-of-time pipeline and a runtime in it is opened, used and closed, again and again.
//
// A plug-in host does that. Each time the runtime's code and its variables go away, so nothing may be left that points
// there: no thread, no exit handler, no device object; and nothing that only it knew: no memory. The driver and the
// loader stay. The counting layer's ledger, the process's list of threads and its list of mappings say whether that is
// so. The test program itself has no runtime.

#include "application.h"

#include "../../mock/mock.h"

#include <gtest/gtest.h>

#include <dirent.h>
#include <malloc.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace {

int threads_of_the_process() {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

// KiB of mappings that a child does not inherit: the runtime marks one to know a child from its parent.
long fork_marks() {
    std::ifstream maps("/proc/self/smaps");
    long size = 0, total = 0;
    for (std::string line; std::getline(maps, line);) {
        if (line.compare(0, 5, "Size:") == 0) size = std::strtol(line.c_str() + 5, nullptr, 10);
        if (line.compare(0, 8, "VmFlags:") == 0 && line.find(" wf") != std::string::npos) total += size;
    }
    return total;
}

class Library {
public:
    // `which`: the variable that names its file.
    explicit Library(const char *which = "HV_AOT_LIBRARY")
        : path(std::getenv(which)), handle(path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr) {
        EXPECT_NE(handle, nullptr) << (path ? dlerror() : which);
    }
    void use(int n, int salt) {
        ASSERT_NE(handle, nullptr);
        EXPECT_EQ(((int (*)(int, int))dlsym(handle, "hv_library_use"))(n, salt), 0);
    }
    void use_with(Application &application, int n, int salt) {
        ASSERT_NE(handle, nullptr);
        EXPECT_EQ(((int (*)(void *, int, int))dlsym(handle, "hv_library_use_with"))(&application, n, salt), 0);
    }
    void leave_in_flight() {
        ASSERT_NE(handle, nullptr);
        EXPECT_EQ(((int (*)())dlsym(handle, "hv_library_leave_in_flight"))(), 0);
    }
    void unload() {
        ASSERT_NE(handle, nullptr);
        EXPECT_EQ(dlclose(handle), 0);
        EXPECT_EQ(dlopen(path, RTLD_NOW | RTLD_NOLOAD), nullptr) << "the library is still loaded: nothing was tested";
    }
    // Nothing of it is there afterwards.
    void close() {
        unload();
        EXPECT_EQ(hv_layer_live(""), 0);
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        EXPECT_EQ(threads_of_the_process(), threads_before);
        EXPECT_EQ(fork_marks(), marks_before);
    }

private:
    const int threads_before = threads_of_the_process();
    const long marks_before = fork_marks();
    const char *path;
    void *handle;
};

constexpr int kTimes = 5;

TEST(GpuAotUnload, OpenedUsedAndClosed) {
    for (int time = 0; time < kTimes; time++) {
        Library library;
        library.use(1000 + time, time);
        library.close();
        EXPECT_EQ(hv_layer_instances(), time + 1u);
    }
}

TEST(GpuAotUnload, ClosedWithWorkInFlight) {
    for (int time = 0; time < kTimes; time++) {
        Library library;
        library.use(100, time);
        library.leave_in_flight();
        library.close();
    }
}

TEST(GpuAotUnload, ClosedUnused) {
    for (int time = 0; time < kTimes; time++) Library().close();
}

// The thread that opened it is not the one that closes it, and neither is the main thread.
TEST(GpuAotUnload, FromOtherThreads) {
    for (int time = 0; time < kTimes; time++) {
        std::unique_ptr<Library> library;
        std::thread([&] {
            library.reset(new Library);
            library->use(100, time);
        }).join();
        std::thread([&] {
            library->leave_in_flight();
            library->close();
        }).join();
    }
}

// The driver keeps some 2 KiB for each device that ever was; the runtime's table of handles alone has 40.
TEST(GpuAotUnload, LeavesNoMemory) {
    const auto round = [](int time) {
        Library library;
        library.use(100, time);
        library.close();
        return mallinfo2().uordblks;
    };
    for (int time = 0; time < 3; time++) round(time);
    const size_t before = mallinfo2().uordblks;
    size_t after = 0;
    for (int time = 0; time < kTimes; time++) after = round(time);
    EXPECT_LT(after, before + kTimes * (16 << 10));
}

// dlclose holds the dynamic linker's lock, and lavapipe wants it to compile what runs for the first time: neither could
// wait for the other.
TEST(GpuAotUnload, ClosedRightAfterTheFirstLaunch) {
    for (int time = 0; time < kTimes; time++) {
        Library library;
        library.leave_in_flight();
        library.close();
    }
}

// A driver that finishes nothing, because it wants the dynamic linker's lock too, say: its device is given up, nothing
// that it may still use is destroyed, and the next one works.
TEST(GpuAotUnload, ClosedWhileTheGpuFinishesNothing) {
    const std::string layers = std::getenv("HL_VK_LAYERS");
    setenv("HL_VK_LOADER_LIB", std::getenv("HV_MOCK"), 1);
    unsetenv("HL_VK_LAYERS");
    const int threads_before = threads_of_the_process();
    const long marks_before = fork_marks();
    for (int time = 0; time < 2; time++) {
        const bool given_up = time == 0;
        mock_completion(given_up ? MOCK_BY_HAND : MOCK_AT_ONCE, 0);
        Library library;
        library.leave_in_flight();
        EXPECT_EQ(mock_pending() > 0, given_up);
        library.unload();
        EXPECT_EQ(mock_live("VkDevice"), 1);
        EXPECT_EQ(threads_of_the_process(), threads_before);
        EXPECT_EQ(fork_marks(), marks_before);
        EXPECT_EQ(mock_wrong_uses(), 0u) << mock_wrong_use();
    }
    setenv("HL_VK_LAYERS", layers.c_str(), 1);
    unsetenv("HL_VK_LOADER_LIB");
}

// A device that the library's user lent and did not take back with halide_device_release: its objects stay, since it
// may be gone already, but no thread runs in code that is gone, and no other memory is left.
TEST(GpuAotUnload, ClosedWithALentDevice) {
    const long marks_before = fork_marks();
    for (int time = 0; time < kTimes; time++) {
        auto *application = new Application;  // its device has objects of the runtime's, so it cannot be destroyed
        Library library("HV_AOT_LENT_LIBRARY");
        library.use_with(*application, 100, time);
        const int threads_before = threads_of_the_process();
        library.use_with(*application, 4 << 20, time);  // so large that threads of the runtime's share the copies
        EXPECT_EQ(threads_of_the_process(), threads_before + 3);
        EXPECT_NE(fork_marks(), marks_before);
        library.unload();
        EXPECT_EQ(threads_of_the_process(), threads_before);
        EXPECT_EQ(fork_marks(), marks_before);
        EXPECT_EQ(application->acquired, application->released);
    }
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

// The process ends with the library open and work under way.
TEST(GpuAotUnload, ExitWhileOpen) {
    Library library;
    library.use(100, 1);
    library.leave_in_flight();
}

}  // namespace
