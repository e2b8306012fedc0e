# Writes forward_names.inc: what a runtime module defines and what it takes from Halide, by the symbols of its bitcode.
#
#   cmake -D NM=llvm-nm -D BITCODE=vulkan_64.bc -D OUTPUT=forward_names.inc -P forward_names.cmake

execute_process(COMMAND "${NM}" "${BITCODE}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [UWT] halide_[a-z_0-9]+" symbols "${symbols}")
set(text "// Made by forward_names.cmake from the runtime's bitcode.\n")
foreach (symbol IN LISTS symbols)
    string(REGEX MATCH " ([UWT]) (halide_[a-z_0-9]+)" symbol "${symbol}")
    set(name "${CMAKE_MATCH_2}")
    if (CMAKE_MATCH_1 STREQUAL "U")
        string(APPEND text "HV_IMPORT(${name})\n")
    elseif (NOT name MATCHES "^halide_vulkan_interface(_impl)?$") # those two are data
        string(APPEND text "HV_EXPORT(${name})\n")
    endif ()
endforeach ()
file(WRITE "${OUTPUT}" "${text}")
