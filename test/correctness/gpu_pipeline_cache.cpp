// Compiled kernels outlive the process in HL_VK_PIPELINE_CACHE, and nothing that happens to the file or its folder is
// noticed in a picture.
//
// The counting layer models what a driver keeps in a VkPipelineCache (lavapipe keeps nothing): it tells how many
// pipelines were found there, how many were compiled anew, and whether a cache was ever begun with bytes that a driver
// may crash on.
//
// The runtime looks up the C library's file functions by name, and finds those of this program first: so a full disk is
// a `write` below that refuses.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count. Stock: fails (it keeps nothing).

#include "pipeline_cache_support.h"

#include <atomic>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace vulkan_test;

namespace {

enum class Fault { none, no_temporary, full_disk, short_writes, no_sync, no_rename, no_read };
std::atomic<Fault> fault{Fault::none};
std::atomic<int> faults_met{0};

bool meets(Fault one) {
    if (fault != one) return false;
    faults_met++;
    return true;
}
int refuse(int error) {
    errno = error;
    return -1;
}

}  // namespace

// The C library's function behind one of ours.
#define NEXT(name) ((decltype(&::name))dlsym(RTLD_NEXT, #name))

extern "C" {
int mkstemp(char *name) { return meets(Fault::no_temporary) ? refuse(EROFS) : NEXT(mkstemp)(name); }
ssize_t write(int file, const void *from, size_t bytes) {
    static const auto next = NEXT(write);
    static std::atomic<size_t> taken{0};
    if (file == STDOUT_FILENO) return next(file, from, bytes);  // what the runtime has to say of it
    if (fault != Fault::full_disk) taken = 0;
    if (meets(Fault::full_disk)) {
        // There is room for a little.
        if (taken >= 500) return refuse(ENOSPC);
        bytes = std::min<size_t>(bytes, 500 - taken);
        taken += bytes;
    }
    if (meets(Fault::short_writes)) bytes = std::min<size_t>(bytes, 77);
    return next(file, from, bytes);
}
int fsync(int file) { return meets(Fault::no_sync) ? refuse(EIO) : NEXT(fsync)(file); }
int rename(const char *from, const char *to) noexcept {
    return meets(Fault::no_rename) ? refuse(EACCES) : NEXT(rename)(from, to);
}
ssize_t read(int file, void *to, size_t bytes) {
    static const auto next = NEXT(read);
    return meets(Fault::no_read) ? refuse(EIO) : next(file, to, bytes);
}
}

namespace {

TEST_F(GpuPipelineCache, TheSecondDeviceCompilesNothing) {
    run({1, 2, 3});
    EXPECT_EQ(compiled, 3u);
    EXPECT_EQ(stats().pipelines, 3u);
    EXPECT_GT(stats().pipeline_ns, 0u);
    EXPECT_EQ(stats().read_bytes, 0u);
    release();
    const fs::path path = file();
    EXPECT_EQ(fs::file_size(path), size_of(3));
    struct stat first = {}, second = {};
    ASSERT_EQ(stat(path.c_str(), &first), 0);
    EXPECT_EQ(first.st_mode & 0777, 0600u) << "for the user alone";

    run({1, 2, 3});
    EXPECT_EQ(found, 3u);
    EXPECT_EQ(compiled, 0u);
    EXPECT_EQ(initial_data(), content(path).substr(kOurHeader));
    EXPECT_EQ(stats().read_bytes, size_of(3) - kOurHeader);
    EXPECT_STREQ(stats().note, "");
    release();
    ASSERT_EQ(stat(path.c_str(), &second), 0);
    EXPECT_EQ(first.st_ino, second.st_ino) << "written again, for nothing";
}

TEST_F(GpuPipelineCache, TheFileGrowsByWhatIsNew) {
    run({1, 2});
    release();
    run({2, 3});
    EXPECT_EQ(found, 1u);
    EXPECT_EQ(compiled, 1u);
    release();
    run({1, 2, 3});
    EXPECT_EQ(found, 3u);
    EXPECT_EQ(fs::file_size(file()), size_of(3));
}

// What the driver itself gives out, with no model in between.
TEST_F(GpuPipelineCache, TheDriversOwnBytes) {
    hv_layer_clear();
    run({1});
    release();
    const std::string bytes = content(file());
    ASSERT_GE(bytes.size(), kOurHeader + kDriverHeader);
    run({1});
    EXPECT_EQ(initial_data(), bytes.substr(kOurHeader));
    EXPECT_STREQ(stats().note, "");
    release();
}

TEST_F(GpuPipelineCache, NothingHappensUnasked) {
    for (bool empty : {false, true}) {
        unsetenv("HL_VK_PIPELINE_CACHE");
        if (empty) use("");
        hv_layer_reset();
        run({1});
        EXPECT_STREQ(stats().note, "");
        release();
        EXPECT_EQ(hv_layer_count("vkGetPipelineCacheData"), 0u);
        EXPECT_TRUE(files().empty());
    }
}

TEST_F(GpuPipelineCache, ADamagedFileIsWrittenAnew) {
    run({1, 2});
    release();
    const fs::path path = file();
    const std::string good = content(path);
    std::map<std::string, std::string> bad;
    for (size_t size : {size_t(0), size_t(1), size_t(7), size_t(8), size_t(11), size_t(12), size_t(127), size_t(128),
                        size_t(159), size_t(160), size_t(1000), good.size() - 1})
        bad["cut to " + std::to_string(size)] = good.substr(0, size);
    for (size_t at : {0, 8, 12, 16, 24, 32, 48, 64, 100, 127, 128, 132, 144, 160, 1500}) {
        bad["changed at " + std::to_string(at)] = good;
        bad["changed at " + std::to_string(at)][at] ^= 0x10;
    }
    bad["a byte too many"] = good + "x";
    bad["twice"] = good + good;
    bad["zeros"] = std::string(good.size(), 0);
    bad["a page of zeros"] = good.substr(0, 200) + std::string(512, 0) + good.substr(712);
    bad["text"] = "This is not what you are looking for.\n";
    bad["the driver's bytes alone"] = good.substr(kOurHeader);
    for (const auto &[name, bytes] : bad) {
        SCOPED_TRACE(name);
        put(path, bytes);
        run({1, 2});
        EXPECT_EQ(found, 0u);
        EXPECT_EQ(initial_data(), "") << "the driver was given it";
        EXPECT_NE(std::string(stats().note), "");
        release();
        EXPECT_EQ(content(path), good);
    }
}

// Somebody put a FIFO in the file's place: nobody waits for its other end, and a file takes its place.
TEST_F(GpuPipelineCache, AFifoInTheFilesPlace) {
    run({1});
    release();
    const fs::path path = file();
    const std::string good = content(path);
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    alarm(60);
    run({1});
    EXPECT_NE(std::string(stats().note).find("it is a pipe"), std::string::npos) << stats().note;
    release();
    alarm(0);
    EXPECT_EQ(content(path), good);
}

TEST_F(GpuPipelineCache, EachDriverHasAFileOfItsOwn) {
    run({1});
    release();
    const fs::path first = file();
    for (const char *what : {"vendorID", "deviceID", "driverVersion", "pipelineCacheUUID", "driverUUID"}) {
        SCOPED_TRACE(what);
        ASSERT_TRUE(hv_layer_limit(what, 4711));
        run({1});
        EXPECT_EQ(found, 0u);
        EXPECT_STREQ(stats().note, "");
        release();
        ASSERT_EQ(files().size(), 2u);
        const fs::path other = files()[files()[0] == first ? 1 : 0];
        // Under the right name, the file of another driver is still the other's.
        fs::copy_file(first, other, fs::copy_options::overwrite_existing);
        run({1});
        EXPECT_EQ(found, 0u);
        EXPECT_EQ(initial_data(), "");
        EXPECT_NE(std::string(stats().note).find("another driver"), std::string::npos) << stats().note;
        release();
        run({1});
        EXPECT_EQ(found, 1u);
        release();
        fs::remove(other);
        hv_layer_clear();
        model(entry);
    }
}

TEST_F(GpuPipelineCache, FolderThatIsNoGood) {
    const fs::path plain = folder / "plain";
    put(plain, "");
    const std::string no_folder = "names no folder that is there (", no_file = "no file can be made in the folder (";
    const std::pair<std::string, std::string> folders[] = {
        {(folder / "absent").string(), no_folder + "No such file or directory): " + (folder / "absent").string()},
        {plain.string(), no_file + "Not a directory): " + (plain / "halide-vulkan-").string()},  // a file
        {"/proc", no_file + "No such file or directory): /proc/halide-vulkan-"},  // nobody can, not even root
        {std::string(10000, 'f'), no_folder + "File name too long): fff"},        // longer than any path
        {"/" + std::string(4000, '/') + "tmp" + std::string(200, 'x'), no_folder + "No such file or directory): ///"},
    };
    for (const auto &[name, note] : folders) {
        SCOPED_TRACE(name.substr(0, 80));
        use(name);
        run({1});
        // What the end of the device finds out is told by nobody any more; the saver's note is seen before.
        EXPECT_TRUE(comes([] { return stats().note[0] != 0; }));
        EXPECT_NE(std::string(stats().note).find(note), std::string::npos) << stats().note;
        release();
    }
    EXPECT_EQ(file(), plain);
}

TEST_F(GpuPipelineCache, ARelativeFolderIsThatOfTheBeginning) {
    const fs::path here = fs::current_path();
    fs::current_path(folder.parent_path());
    use(folder.filename().string());
    run({1});
    fs::current_path("/");
    release();
    fs::current_path(here);
    EXPECT_EQ(fs::file_size(file()), size_of(1));
}

TEST_F(GpuPipelineCache, FaultsOfTheDisk) {
    run({1});
    release();
    const fs::path path = file();
    const std::string good = content(path);
    int number = 10;
    const std::string not_taken = "the disk did not take a file of " + std::to_string(size_of(2)) + " bytes ";
    const std::pair<Fault, std::string> faults[] = {
        {Fault::no_temporary, "no file can be made in the folder (Read-only file system)"},
        {Fault::full_disk, not_taken + "(No space left on device)"},
        {Fault::no_sync, not_taken + "(Input/output error)"},
        {Fault::no_rename, "the new file cannot be put in its place (Permission denied)"},
    };
    for (const auto &[one, why] : faults) {
        SCOPED_TRACE((int)one);
        faults_met = 0;
        ::testing::internal::CaptureStdout();
        fault = one;
        run({1, ++number});
        EXPECT_EQ(found, 1u);
        release();
        fault = Fault::none;
        EXPECT_EQ(::testing::internal::GetCapturedStdout(),
                  "Vulkan: pipeline cache: " + why + ": " + path.string() + "\n");
        EXPECT_GT(faults_met, 0);
        EXPECT_EQ(file(), path) << "a file was left behind";
        EXPECT_EQ(content(path), good) << "a good file was lost to a bad one";
    }
    // An existing file that cannot be read costs its content, no more.
    faults_met = 0;
    fault = Fault::no_read;
    run({1});
    EXPECT_EQ(found, 0u);
    EXPECT_GT(faults_met, 0);
    EXPECT_NE(std::string(stats().note).find("cannot be read (Input/output error): " + path.string()),
              std::string::npos)
        << stats().note;
    fault = Fault::none;
    release();
    EXPECT_EQ(content(path), good);
    // A directory in its place can neither be read nor replaced.
    fs::remove(path);
    fs::create_directory(path);
    run({1});
    EXPECT_EQ(found, 0u);
    EXPECT_NE(std::string(stats().note).find("cannot be read (Is a directory)"), std::string::npos) << stats().note;
    release();
    EXPECT_TRUE(fs::is_directory(file()));
    fs::remove(path);
    // Writes that take little at a time go on.
    faults_met = 0;
    fault = Fault::short_writes;
    run({1});
    release();
    fault = Fault::none;
    EXPECT_GT(faults_met, 5);
    EXPECT_EQ(content(path), good);
}

// After a refused write the device goes on; what is written next, while it lives or at its end, has everything.
TEST_F(GpuPipelineCache, ARefusedWriteIsMadeUpFor) {
    for (bool more : {true, false}) {
        SCOPED_TRACE(more);
        fault = Fault::full_disk;
        run({1});
        EXPECT_TRUE(comes([] { return stats().note[0] != 0; }));
        EXPECT_NE(std::string(stats().note).find("(No space left on device): " + folder.string()), std::string::npos)
            << stats().note;
        EXPECT_TRUE(files().empty());
        fault = Fault::none;
        if (more) {
            run({2});
            EXPECT_TRUE(comes([&] { return has_file_of(2); }));
        }
        release();
        EXPECT_EQ(fs::file_size(file()), size_of(more ? 2 : 1));
        fs::remove(file());
    }
}

// Beyond RLIMIT_FSIZE a write kills the process by default.
TEST_F(GpuPipelineCache, ALimitOnFileSizes) {
    model(50000);
    rlimit old = {}, small = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = {40000, old.rlim_max};
    run({1});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool told = comes([] { return stats().note[0] != 0; });
    const std::string note = stats().note;
    release();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_TRUE(told);
    EXPECT_NE(note.find("RLIMIT_FSIZE allows 40000): " + folder.string()), std::string::npos) << note;
    EXPECT_TRUE(files().empty());
}

TEST_F(GpuPipelineCache, TheFileHasALimit) {
    setenv("HL_VK_PIPELINE_CACHE_MB", "1", 1);
    model(400000);
    run({1, 2});
    release();
    const fs::path path = file();
    EXPECT_EQ(fs::file_size(path), size_of(2));
    // Three are too many: the file stays as it was.
    run({1, 2, 3});
    EXPECT_EQ(found, 2u);
    release();
    EXPECT_EQ(fs::file_size(path), size_of(2));
    // Ours and those of the file together are too many: ours stay.
    fs::path elsewhere = path.string() + ".kept";
    fs::rename(path, elsewhere);
    run({4, 5});
    fs::rename(elsewhere, path);
    release();
    EXPECT_EQ(fs::file_size(path), size_of(2));
    run({4, 5});
    EXPECT_EQ(found, 2u);
    release();
    // A file over the limit is not read, and is replaced.
    unsetenv("HL_VK_PIPELINE_CACHE_MB");
    run({1, 2, 4, 5});
    release();
    EXPECT_EQ(fs::file_size(path), size_of(4));
    setenv("HL_VK_PIPELINE_CACHE_MB", "1", 1);
    run({1});
    EXPECT_EQ(found, 0u);
    EXPECT_NE(std::string(stats().note).find("HL_VK_PIPELINE_CACHE_MB allows 1 MiB): " + path.string()),
              std::string::npos)
        << stats().note;
    release();
    EXPECT_EQ(fs::file_size(path), size_of(1));
}

TEST_F(GpuPipelineCache, TheDriverRefuses) {
    run({1});
    release();
    const fs::path path = file();
    const std::string good = content(path);
    constexpr int kOutOfHostMemory = -1, kIncomplete = 5;  // VkResult
    // The file's content is not taken: an empty cache does as well.
    ASSERT_TRUE(hv_layer_fail("vkCreatePipelineCache", 1, kOutOfHostMemory));
    run({1});
    EXPECT_EQ(compiled, 1u);
    EXPECT_NE(std::string(stats().note)
                  .find("does not take the file's content (VK_ERROR_OUT_OF_HOST_MEMORY): " + path.string()),
              std::string::npos)
        << stats().note;
    release();
    EXPECT_EQ(content(path), good);
    // Nothing is given out.
    for (int result : {kOutOfHostMemory, kIncomplete}) {
        ASSERT_TRUE(hv_layer_fail("vkGetPipelineCacheData", -1, result));
        run({1, 2});
        EXPECT_EQ(found, 1u);
        release();
        ASSERT_TRUE(hv_layer_fail("vkGetPipelineCacheData", 0, 0));
        EXPECT_EQ(content(path), good);
    }
    // It grew between the two calls, once.
    ASSERT_TRUE(hv_layer_fail("vkGetPipelineCacheData", 2, kIncomplete));
    run({1, 2});
    release();
    EXPECT_EQ(fs::file_size(path), size_of(2));
    // What another process left cannot be merged: then ours stays.
    fs::remove(path);
    run({3});
    put(path, good);
    hv_layer_reset();
    ASSERT_TRUE(hv_layer_fail("vkMergePipelineCaches", -1, kOutOfHostMemory));
    release();
    EXPECT_EQ(hv_layer_count("vkMergePipelineCaches"), 1u);
    ASSERT_TRUE(hv_layer_fail("vkMergePipelineCaches", 0, 0));
    run({3});
    EXPECT_EQ(found, 1u);
}

TEST_F(GpuPipelineCache, AProcessThatEndsWithoutARelease) {
    EXPECT_TRUE(Processes::run("1,2"));
    EXPECT_EQ(fs::file_size(file()), size_of(2));
    run({1, 2});
    EXPECT_EQ(found, 2u);
}

// What another process wrote meanwhile is kept, also when this one writes twice.
TEST_F(GpuPipelineCache, OthersPipelinesAreMergedIn) {
    run({1});
    EXPECT_TRUE(Processes::run("2"));
    // The thread of ours writes after a quiet time, with no call of the runtime.
    ASSERT_TRUE(comes([&] { return has_file_of(2); }));
    run({3});
    release();
    EXPECT_EQ(fs::file_size(file()), size_of(3));
    run({1, 2, 3});
    EXPECT_EQ(found, 3u);
}

TEST_F(GpuPipelineCache, ManyProcessesAtOnce) {
    for (int round = 0; round < 5; round++) EXPECT_TRUE(Processes::run("1,2,3;1,2,4;1,5;1,6;1;2,1"));
    // Of two that wrote at the same moment one may have lost; whoever was last is there whole.
    run({1});
    EXPECT_EQ(found, 1u);
    EXPECT_GE(fs::file_size(file()), size_of(2));
    EXPECT_STREQ(stats().note, "");
}

// Nothing of it happens on the way of a launch.
TEST_F(GpuPipelineCache, LaunchesDoNotWrite) {
    run({1});
    release();
    run({1, 2});
    ASSERT_TRUE(comes([&] { return has_file_of(2); }));
    hv_layer_reset();
    for (int i = 0; i < 50; i++) run({1, 2});
    EXPECT_EQ(hv_layer_count("vkGetPipelineCacheData"), 0u);
    EXPECT_EQ(hv_layer_count("vkCreateComputePipelines"), 0u);
}

}  // namespace
