# The three kinds of target a room declares. PUBLIC dependencies only: a room's headers name what they need.
include_guard()

# ciuic_library(NAME SOURCES a.cpp … DEPS target …): a static library of one room; `ciuic_flags` always applies.
function(ciuic_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC ciuic_flags ${arg_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ciuic_flags ${arg_DEPS})
  endif()
endfunction()

# ciuic_program(NAME SOURCES … DEPS …): lands in <build>/bin.
function(ciuic_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ciuic_flags ${arg_DEPS})
endfunction()

add_custom_target(sanitized_tests)

# ciuic_test(NAME SOURCES … DEPS … [LABELS quick|slow …]): a GoogleTest binary, one CTest entry; lands in <build>/tests.
# Those of `quick` and `sim` are what the sanitizers run too (label `sanitized`, target `sanitized_tests`).
# Label `quick` (the default) is what `tools/test --quick` runs: a few seconds each, no peer, no network but loopback.
function(ciuic_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ciuic_flags ciuic_gtest_main ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT arg_LABELS)
    set(arg_LABELS quick)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if("quick" IN_LIST arg_LABELS OR "sim" IN_LIST arg_LABELS)
    list(APPEND arg_LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# ciuic_sanitized(TEST NAME=VALUE …): a script that drives a broker; the sanitizers run it too, against theirs, in this
# environment, which bounds its time there. Who starts the broker looks for their reports (tests/clients/support/brokers.py).
function(ciuic_sanitized name)
  if(NOT CIUIC_SANITIZE)
    return()
  endif()
  set_property(TEST ${name} APPEND PROPERTY LABELS sanitized)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${ARGN})
  add_dependencies(sanitized_tests ciuic-broker)
endfunction()

# ciuic_fuzz(NAME SEEDS file.hex SOURCES … DEPS …): a libFuzzer target, only in the fuzz preset; its test (label `fuzz`)
# runs it for a bounded while. Target `fuzz_targets` builds them all.
if(CIUIC_FUZZ)
  add_custom_target(fuzz_targets)
endif()
function(ciuic_fuzz name)
  if(NOT CIUIC_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "SEEDS" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ciuic_flags ${arg_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  add_dependencies(fuzz_targets ${name})
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz/run $<TARGET_FILE:${name}> ${arg_SEEDS})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
