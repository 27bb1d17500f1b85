# Compiler settings of all our code: C++20, warnings are errors, x86-64-v2 (what every server of the last decade runs).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

# Under its own instrumentation GCC 12 sees uninitialized members and mismatched deletes that are not there: those builds
# look for real ones, and warnings are errors in the others.
if(NOT CIUIC_SANITIZE)
  set(CIUIC_WERROR -Werror)
endif()
add_library(ciuic_flags INTERFACE)
target_include_directories(ciuic_flags INTERFACE ${PROJECT_SOURCE_DIR})
# C has no use for the C++ warnings.
target_compile_options(ciuic_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;${CIUIC_WERROR}>"
  "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;${CIUIC_WERROR}>"
  $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-march=x86-64-v2>
  -fno-omit-frame-pointer)

if(CIUIC_SANITIZE)
  add_compile_options(-fsanitize=${CIUIC_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CIUIC_SANITIZE})
  add_compile_options(-g1)  # line tables are what reports need
endif()
if(CIUIC_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CIUIC_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
