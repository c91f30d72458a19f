/* SPDX-License-Identifier: Apache-2.0 */
/* Included by jansson by name; jansson_config.h has the settings. */
#define HAVE_STDINT_H 1
