# Functions that make tests. Each registers CTest entries; `ctest --preset release` or `make test` runs them.
#
#   hv_add_unit_test(NAME SOURCES... [LIBRARIES L...] [TIMEOUT S])
#       GoogleTest over our own headers; no Halide, no device. It may include "vulkan_base.h" and its like.
#
#   hv_add_halide_test(NAME SOURCES... [LIBRARIES L...] [ENVIRONMENT E...] [TIMEOUT S] [NO_MAIN] [SERIAL] [NO_CTEST])
#       GoogleTest (or, with NO_MAIN, a program with a main of its own) linked with the wheel's libHalide, run with our
#       runtime in front of it through test/run-with-runtime. "Halide.h" and <gtest/gtest.h> are precompiled once for
#       all; so these tests must not add compile options or definitions of their own (they would lose the PCH).
#       NO_CTEST makes the program only; add entries with hv_add_halide_run.
#
#   hv_add_halide_run(NAME PROGRAM [ARGUMENTS A...] [ENVIRONMENT E...] [TIMEOUT S] [SERIAL] [NIGHTLY])
#       one more CTest entry for a program made by hv_add_halide_test: other arguments, another environment. NIGHTLY:
#       too long for `make test`; only `make nightly` runs it (ctest -C nightly -L nightly).
#
#   hv_add_python_test(NAME FILE [ENVIRONMENT E...] [TIMEOUT S] [PRELOAD] [SERIAL])
#       pytest over FILE with .venv's Python; with PRELOAD our runtime is in front of libHalide.
#
# Every entry runs in build/test with HV_LIBRARY naming libHalideVulkan.so, and with the counting layer at hand
# (test/layer/count_layer.h): VK_LAYER_PATH names its folder besides the system's own and HV_COUNT_LAYER its file, so
# ENVIRONMENT HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count is all that a test needs to switch it on. HV_MOCK names the mock
# driver (test/mock/mock.h); ENVIRONMENT HL_VK_LOADER_LIB=${HV_MOCK_FILE} makes the runtime use it.

find_package(GTest REQUIRED)
find_package(Vulkan REQUIRED)

set(HV_TEST_DIRECTORY "${PROJECT_BINARY_DIR}/test")
set(HV_LAUNCHER "${PROJECT_SOURCE_DIR}/test/run-with-runtime")
set(HV_LAYER_DIRECTORY "${PROJECT_BINARY_DIR}/layer")
# Kernels assembled by hand (test/correctness).
set(HV_SPIRV_DIRECTORY "${PROJECT_BINARY_DIR}/spirv")
set(HV_MOCK_FILE "${PROJECT_BINARY_DIR}/mock/libvulkan_mock.so")
set(HV_LAYER_PATH "${HV_LAYER_DIRECTORY}:/usr/share/vulkan/explicit_layer.d")

# The precompiled header. A target without a device test in it, so that all of them can reuse it.
file(WRITE "${PROJECT_BINARY_DIR}/halide_pch.cpp.in" "// Carries the precompiled header of the Halide tests.\n")
configure_file("${PROJECT_BINARY_DIR}/halide_pch.cpp.in" "${PROJECT_BINARY_DIR}/halide_pch.cpp" COPYONLY)
add_library(hv_halide_pch OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/halide_pch.cpp")
target_link_libraries(hv_halide_pch PRIVATE hv_native HalideWheel::Halide GTest::gtest)
target_precompile_headers(hv_halide_pch PRIVATE <Halide.h> <gtest/gtest.h> <cstdio> <cstdlib> <string> <vector>)

# hv_register(NAME COMMAND...): one CTest entry with what every entry has. Reads HV_TIMEOUT, HV_ENVIRONMENT, HV_SERIAL,
# HV_NIGHTLY, HV_CONFIGURATION (nightly or coverage: only that target of the Makefile runs it).
function (hv_register name)
    set(configurations "")
    if (HV_NIGHTLY)
        set(HV_CONFIGURATION nightly)
    endif ()
    if (HV_CONFIGURATION)
        set(configurations CONFIGURATIONS ${HV_CONFIGURATION})
    endif ()
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${HV_TEST_DIRECTORY}" ${configurations})
    if (HV_CONFIGURATION)
        set_property(TEST ${name} APPEND PROPERTY LABELS ${HV_CONFIGURATION})
    endif ()
    if (NOT HV_TIMEOUT)
        set(HV_TIMEOUT 120)
    endif ()
    set(environment
        "HV_LIBRARY=$<TARGET_FILE:HalideVulkan>"
        "HV_COUNT_LAYER=${HV_LAYER_DIRECTORY}/VkLayer_halidevulkan_count.so"
        "VK_LAYER_PATH=${HV_LAYER_PATH}"
        "HV_MOCK=${HV_MOCK_FILE}"
        ${HV_ENVIRONMENT}
    )
    set_tests_properties(
        ${name}
        PROPERTIES
            TIMEOUT ${HV_TIMEOUT}
            ENVIRONMENT "${environment}"
    )
    if (HV_SERIAL)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif ()
endfunction ()

function (hv_add_unit_test name)
    cmake_parse_arguments(HV "" "TIMEOUT" "LIBRARIES" ${ARGN})
    add_executable(${name} ${HV_UNPARSED_ARGUMENTS})
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src/runtime")
    target_link_libraries(${name} PRIVATE hv_native GTest::gtest_main ${HV_LIBRARIES})
    hv_register(${name} ${name})
endfunction ()

function (hv_add_halide_run name program)
    cmake_parse_arguments(HV "SERIAL;NIGHTLY" "TIMEOUT" "ARGUMENTS;ENVIRONMENT" ${ARGN})
    hv_register(${name} "${HV_LAUNCHER}" $<TARGET_FILE:HalideVulkan> $<TARGET_FILE:${program}> ${HV_ARGUMENTS})
    set_property(TEST ${name} APPEND PROPERTY LABELS vulkan)
endfunction ()

function (hv_add_halide_test name)
    cmake_parse_arguments(HV "NO_MAIN;SERIAL;NO_CTEST" "TIMEOUT" "LIBRARIES;ENVIRONMENT" ${ARGN})
    add_executable(${name} ${HV_UNPARSED_ARGUMENTS})
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
    target_link_libraries(${name} PRIVATE hv_native HalideWheel::Halide GTest::gtest ${HV_LIBRARIES})
    if (NOT HV_NO_MAIN)
        target_link_libraries(${name} PRIVATE GTest::gtest_main)
    endif ()
    target_precompile_headers(${name} REUSE_FROM hv_halide_pch)
    add_dependencies(${name} HalideVulkan)
    if (NOT HV_NO_CTEST)
        hv_register(${name} "${HV_LAUNCHER}" $<TARGET_FILE:HalideVulkan> $<TARGET_FILE:${name}>)
        set_property(TEST ${name} APPEND PROPERTY LABELS vulkan)
    endif ()
endfunction ()

function (hv_add_python_test name file)
    cmake_parse_arguments(HV "PRELOAD;SERIAL" "TIMEOUT" "ENVIRONMENT" ${ARGN})
    cmake_path(ABSOLUTE_PATH file)
    set(pytest "${HV_PYTHON}" -B -m pytest -q -p no:cacheprovider --basetemp=${name}.tmp "${file}")
    if (HV_PRELOAD)
        set(pytest "${HV_LAUNCHER}" $<TARGET_FILE:HalideVulkan> ${pytest})
    endif ()
    hv_register(${name} ${pytest})
endfunction ()
