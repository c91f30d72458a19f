/* SPDX-License-Identifier: Apache-2.0 */
/* jansson asks for it by name; jansson_config.h says all. */
#define HAVE_STDINT_H 1
