# The runtime compiled for this machine, as a library that programs link, instead of bitcode inside libHalide.
#
# Sanitizers, coverage and a mock driver need the runtime's own sources as ordinary machine code. A pipeline that is
# compiled ahead of time with `no_runtime` asks for the runtime's functions by name, and Halide can make a runtime
# archive without any device API (host_runtime.a, see gpu_aot_generate); so sources, pipelines and Halide's own runtime
# meet in one link, without libHalide. The compiler is clang-19, whatever compiles the rest: a sanitizer's run-time
# library must be that of the compiler, and src/runtime needs clang anyway.
#
#   hv_add_native_runtime(NAME [FLAGS F...] [SOURCES S...] [EXCLUDE_FROM_ALL])
#       static library NAME: src/runtime/vulkan.cpp compiled with FLAGS, and SOURCES likewise. It brings host_runtime.a
#       along. Any compiler can link it, as long as FLAGS need no run-time library of clang's.
#
#   hv_add_native_program(NAME RUNTIME SOURCE [FLAGS F...] [LIBRARIES FILE...] [EXCLUDE_FROM_ALL])
#       GoogleTest program NAME of one source file, compiled and linked by clang-19 with the flags of RUNTIME.
#       The file is build/native/NAME. LIBRARIES are files, pipelines for example.
#
#   hv_add_native_run(TEST NAME [ARGUMENTS A...] [ENVIRONMENT E...] [TIMEOUT S] [CONFIGURATION nightly|coverage])
#       CTest entry that runs program NAME; the first report of a sanitizer ends it and fails the test.
#
#   hv_add_native_stand_in(NAME [FLAGS F...] [EXCLUDE_FROM_ALL])
#       stands in for libHalideVulkan.so in JIT programs: build/native/NAME/stand_in.so, which has runtime.so and
#       runtime_debug.so beside it, compiled with FLAGS. test/native/run-with-native runs programs with it.
#
#   hv_add_native_copies(TEST PROGRAM [ARGUMENTS A...] [ENVIRONMENT E...] [TIMEOUT S])
#       the CTest entry TEST, which runs a Halide program, twice more with native runtimes: asan.TEST (those named in
#       HV_ASAN_IN_TEST belong to `make test`, the others to `make nightly`) and coverage.TEST, for `make coverage`.
#
#   hv_add_native_pipelines(FEATURE OUT)
#       the pipelines of the ahead-of-time tests with one more target feature; OUT is their folder.

set(HV_NATIVE_DIRECTORY "${PROJECT_BINARY_DIR}/native")
# Where programs with coverage put their counters: four files for each program, added up by whoever ends.
set(HV_PROFILE_FILES "${HV_NATIVE_DIRECTORY}/profiles/%4m.profraw")
file(MAKE_DIRECTORY "${HV_NATIVE_DIRECTORY}")

# As for the bitcode, but with what a debugger and a sanitizer need. Assembled here by clang, archived by CMake.
set(HV_NATIVE_RUNTIME_FLAGS
    -O1 -g -fno-omit-frame-pointer -std=c++17 -fPIC -ffreestanding -nostdlibinc -fno-exceptions -fno-rtti
    -fno-threadsafe-statics -Wall -Wextra -Wno-missing-field-initializers -Werror
    -DCOMPILING_HALIDE_RUNTIME -DBITS_64
)
set(HV_NATIVE_PROGRAM_FLAGS
    -O1 -g -fno-omit-frame-pointer -std=c++17 -fPIC -Wall -Wextra -Wno-missing-field-initializers
)

function (hv_native_object source output)
    add_custom_command(
        OUTPUT "${output}"
        COMMAND "${HV_CLANG}" ${ARGN} -MD -MF "${output}.d" -MT "${output}" -c "${source}" -o "${output}"
        DEPENDS "${source}"
        DEPFILE "${output}.d"
        COMMENT "Native object of ${source}"
        VERBATIM
    )
endfunction ()

function (hv_add_native_runtime name)
    cmake_parse_arguments(HV "EXCLUDE_FROM_ALL" "" "FLAGS;SOURCES" ${ARGN})
    set(objects "${HV_NATIVE_DIRECTORY}/${name}.vulkan.o")
    hv_native_object(
        "${PROJECT_SOURCE_DIR}/src/runtime/vulkan.cpp" "${objects}"
        ${HV_NATIVE_RUNTIME_FLAGS} ${HV_FLAGS}
        -I "${PROJECT_SOURCE_DIR}/src/runtime" -I "${PROJECT_SOURCE_DIR}/src/shim"
        -isystem "${HV_HALIDE_ROOT}/include" -isystem "${HV_VULKAN_HEADERS}"
    )
    foreach (source IN LISTS HV_SOURCES)
        cmake_path(ABSOLUTE_PATH source)
        cmake_path(GET source STEM stem)
        set(object "${HV_NATIVE_DIRECTORY}/${name}.${stem}.o")
        hv_native_object(
            "${source}" "${object}" ${HV_NATIVE_PROGRAM_FLAGS} ${HV_FLAGS} -isystem "${HV_HALIDE_ROOT}/include"
        )
        list(APPEND objects "${object}")
    endforeach ()
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    add_library(${name} STATIC ${objects})
    set_target_properties(
        ${name} PROPERTIES LINKER_LANGUAGE CXX HV_NATIVE_FLAGS "${HV_FLAGS}" EXCLUDE_FROM_ALL ${HV_EXCLUDE_FROM_ALL}
    )
    target_link_libraries(
        ${name} INTERFACE "${PROJECT_BINARY_DIR}/aot/host_runtime.a" Threads::Threads ${CMAKE_DL_LIBS}
    )
    add_dependencies(${name} hv_aot)
endfunction ()

function (hv_add_native_program name runtime source)
    cmake_parse_arguments(HV "EXCLUDE_FROM_ALL" "" "FLAGS;LIBRARIES" ${ARGN})
    cmake_path(ABSOLUTE_PATH source)
    set(output "${HV_NATIVE_DIRECTORY}/${name}")
    get_target_property(flags ${runtime} HV_NATIVE_FLAGS)
    if (NOT flags)
        set(flags "")
    endif ()
    set(files ${HV_LIBRARIES})
    list(FILTER files EXCLUDE REGEX "^-l")
    add_custom_command(
        OUTPUT "${output}"
        COMMAND
            "${HV_CLANG}" ${HV_NATIVE_PROGRAM_FLAGS} ${flags} ${HV_FLAGS}
            -isystem "${HV_HALIDE_ROOT}/include" -I "${PROJECT_SOURCE_DIR}/src/runtime"
            -MD -MF "${output}.d" -MT "${output}" "${source}" -o "${output}"
            # The runtime finds the program's functions, and the test the runtime's, in the dynamic symbol table.
            -rdynamic
            -Wl,--start-group $<TARGET_FILE:${runtime}> ${HV_LIBRARIES} -Wl,--end-group
            "${PROJECT_BINARY_DIR}/aot/host_runtime.a"
            $<TARGET_FILE:GTest::gtest> $<TARGET_FILE:GTest::gtest_main> -lpthread -ldl
        DEPENDS "${source}" ${runtime} $<TARGET_FILE:${runtime}> ${files}
        DEPFILE "${output}.d"
        COMMENT "Native ${name}"
        VERBATIM
    )
    set(all ALL)
    if (HV_EXCLUDE_FROM_ALL)
        set(all "")
    endif ()
    add_custom_target(${name} ${all} DEPENDS "${output}")
    add_dependencies(${name} hv_aot hv_count_layer)
endfunction ()

find_program(HV_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer REQUIRED DOC "Names in sanitizers' reports")
set(common "external_symbolizer_path=${HV_SYMBOLIZER}")
set(HV_SANITIZER_ENVIRONMENT
    "ASAN_OPTIONS=${common}"
    "UBSAN_OPTIONS=${common}:print_stacktrace=1"
    "TSAN_OPTIONS=${common}:halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/test/native/drivers.supp"
)
function (hv_add_native_run test name)
    cmake_parse_arguments(HV "" "TIMEOUT;CONFIGURATION" "ARGUMENTS;ENVIRONMENT" ${ARGN})
    list(APPEND HV_ENVIRONMENT ${HV_SANITIZER_ENVIRONMENT} "LLVM_PROFILE_FILE=${HV_PROFILE_FILES}")
    hv_register(${test} "${HV_NATIVE_DIRECTORY}/${name}" ${HV_ARGUMENTS})
    set_property(TEST ${test} APPEND PROPERTY LABELS vulkan native)
endfunction ()

function (hv_add_native_pipelines feature out)
    set(folder "${HV_NATIVE_DIRECTORY}/pipelines_${feature}")
    add_custom_command(
        OUTPUT "${folder}/double_and_add.a" "${folder}/blur.a" "${folder}/double_and_add.h" "${folder}/blur.h"
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
        COMMAND "${HV_LAUNCHER}" $<TARGET_FILE:HalideVulkan> $<TARGET_FILE:gpu_aot_generate> "${folder}" ${feature}
        DEPENDS gpu_aot_generate HalideVulkan
        COMMENT "Pipelines with ${feature}"
        VERBATIM
    )
    set(${out} "${folder}" PARENT_SCOPE)
endfunction ()

find_program(HV_LLVM_NM NAMES llvm-nm-19 REQUIRED DOC "Symbols of bitcode")
function (hv_add_native_stand_in name)
    cmake_parse_arguments(HV "EXCLUDE_FROM_ALL" "" "FLAGS" ${ARGN})
    set(here "${PROJECT_SOURCE_DIR}/test/native")
    set(folder "${HV_NATIVE_DIRECTORY}/${name}")
    file(MAKE_DIRECTORY "${folder}")
    set(inputs "")
    set(HV_ARRAYS "")
    foreach (flavour IN ITEMS 0 1)
        set(suffix "")
        set(flags ${HV_FLAGS})
        if (flavour)
            set(suffix _debug)
            list(APPEND flags -DDEBUG_RUNTIME)
        endif ()
        set(names "${folder}/names${suffix}")
        set(bitcode "${PROJECT_BINARY_DIR}/bitcode/vulkan_64${suffix}.bc")
        set(forward "${folder}/forward${suffix}.bc")
        file(MAKE_DIRECTORY "${names}")
        add_custom_command(
            OUTPUT "${names}/forward_names.inc"
            COMMAND
                "${CMAKE_COMMAND}" -D "NM=${HV_LLVM_NM}" -D "BITCODE=${bitcode}" -D "OUTPUT=${names}/forward_names.inc"
                -P "${here}/forward_names.cmake"
            DEPENDS HalideVulkan "${here}/forward_names.cmake"
            VERBATIM
        )
        add_custom_command(
            OUTPUT "${forward}"
            COMMAND
                "${HV_CLANG}" ${HV_BITCODE_FLAGS} -m64 -DBITS_64 -target x86_64-unknown-unknown-unknown -fpic
                -DHV_FLAVOUR=${flavour} -I "${names}" -emit-llvm -c "${here}/forward.cpp" -o "${forward}"
            DEPENDS "${here}/forward.cpp" "${names}/forward_names.inc"
            VERBATIM
        )
        hv_native_object(
            "${PROJECT_SOURCE_DIR}/src/runtime/vulkan.cpp" "${folder}/vulkan${suffix}.o"
            ${HV_NATIVE_RUNTIME_FLAGS} ${flags}
            -I "${PROJECT_SOURCE_DIR}/src/runtime" -I "${PROJECT_SOURCE_DIR}/src/shim"
            -isystem "${HV_HALIDE_ROOT}/include" -isystem "${HV_VULKAN_HEADERS}"
        )
        # The sanitizer's library comes with the program (run-with-native), so undefined symbols are in order.
        add_custom_command(
            OUTPUT "${folder}/runtime${suffix}.so"
            COMMAND
                "${HV_CLANG}" -std=c++17 -O1 -fPIC -shared -shared-libsan -Wl,-Bsymbolic ${HV_FLAGS}
                -DHV_IMPORT_TABLE=hv_native_imports_${flavour} -I "${names}"
                "${folder}/vulkan${suffix}.o" "${here}/imports.cpp" -o "${folder}/runtime${suffix}.so"
            DEPENDS "${folder}/vulkan${suffix}.o" "${here}/imports.cpp" "${names}/forward_names.inc"
            VERBATIM
        )
        list(APPEND inputs "${folder}/runtime${suffix}.so" "${forward}")
        string(APPEND HV_ARRAYS "    runtime_array halide_internal_initmod_vulkan_64${suffix}, \"${forward}\"\n")
    endforeach ()
    configure_file("${PROJECT_SOURCE_DIR}/src/interpose/arrays.S.in" "${folder}/arrays.S" @ONLY)
    add_custom_command(
        OUTPUT "${folder}/stand_in.so"
        COMMAND
            "${HV_CLANG}" -std=c++17 -O1 -fPIC -fvisibility=hidden -shared -I "${folder}/names"
            "${folder}/arrays.S" "${here}/connect.cpp" -ldl -o "${folder}/stand_in.so"
        DEPENDS ${inputs} "${here}/connect.cpp" "${folder}/arrays.S" "${PROJECT_SOURCE_DIR}/src/interpose/arrays.S.in"
        VERBATIM
    )
    set(all ALL)
    if (HV_EXCLUDE_FROM_ALL)
        set(all "")
    endif ()
    add_custom_target(${name} ${all} DEPENDS "${folder}/stand_in.so")
    add_dependencies(${name} HalideVulkan)
endfunction ()

# A sample of what the sanitizers see in JIT programs; each of these takes seconds.
set(HV_ASAN_IN_TEST
    correctness_gpu_debug_trace correctness_gpu_errors correctness_gpu_threads correctness_gpu_crops
    correctness_gpu_exit.WhileOthersWork correctness_gpu_free_while_in_flight
)
execute_process(
    COMMAND "${HV_CLANG}" -print-file-name=libclang_rt.asan-x86_64.so
    OUTPUT_VARIABLE HV_ASAN_LIBRARY OUTPUT_STRIP_TRAILING_WHITESPACE
)
function (hv_add_native_copies test program)
    cmake_parse_arguments(HV "" "TIMEOUT" "ARGUMENTS;ENVIRONMENT" ${ARGN})
    if (NOT HV_TIMEOUT)
        set(HV_TIMEOUT 120)
    endif ()
    math(EXPR HV_TIMEOUT "${HV_TIMEOUT} * 4")
    set(launcher "${PROJECT_SOURCE_DIR}/test/native/run-with-native")
    set(environment ${HV_ENVIRONMENT})
    foreach (kind IN ITEMS asan coverage)
        set(HV_ENVIRONMENT ${environment})
        unset(HV_CONFIGURATION)
        if (kind STREQUAL "coverage")
            set(HV_CONFIGURATION coverage)
            list(APPEND HV_ENVIRONMENT "LLVM_PROFILE_FILE=${HV_PROFILE_FILES}")
        else ()
            if (NOT test IN_LIST HV_ASAN_IN_TEST)
                set(HV_CONFIGURATION nightly)
            endif ()
            # Memory that only JIT-compiled code knows looks lost; leaks are the business of native_stress.
            list(
                APPEND HV_ENVIRONMENT
                "HV_SANITIZER_LIBRARY=${HV_ASAN_LIBRARY}"
                "ASAN_OPTIONS=external_symbolizer_path=${HV_SYMBOLIZER}:detect_leaks=0:exitcode=86"
                "UBSAN_OPTIONS=external_symbolizer_path=${HV_SYMBOLIZER}:print_stacktrace=1"
            )
        endif ()
        hv_register(
            ${kind}.${test}
            "${launcher}" "${HV_NATIVE_DIRECTORY}/hv_stand_in_${kind}" $<TARGET_FILE:${program}> ${HV_ARGUMENTS}
        )
        set_property(TEST ${kind}.${test} APPEND PROPERTY LABELS vulkan native)
    endforeach ()
endfunction ()
