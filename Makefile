# make demo · test · lint · install. Debian or Ubuntu; see README.md.

PREFIX ?= /usr/local
DESTDIR ?=
BORINGTUN_VERSION = 0.7.1
CARGO_DENY_VERSION = 0.20.2
TARGET = $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)

# Under sudo, the Rust of whoever called it serves.
export PATH := $(if $(SUDO_USER),$(PATH):$(shell getent passwd $(SUDO_USER) | cut -d: -f6)/.cargo/bin,$(PATH):$(HOME)/.cargo/bin)

BUILD_PACKAGES = gcc libc6-dev pkg-config libnftnl-dev libmnl-dev
DEMO_PACKAGES = iproute2 iputils-ping iperf3
TEST_PACKAGES = g++ tcpdump nftables procps wireguard-tools wireguard-go

.PHONY: all build demo test peers lint deny install clean

all: build

build:
	@tests/packages.sh build $(BUILD_PACKAGES)
	cargo build --release -p ringway-supervisor -p ringway-tools

# Two gateways in namespaces of their own: handshake, ping, iperf3 with a live table of workers.
demo:
	@tests/packages.sh demo $(BUILD_PACKAGES) $(DEMO_PACKAGES)
	@echo "building (some minutes at the first time) ..."
	@cargo build --release -p ringway-supervisor -p ringway-tools
	@$(TARGET)/release/ringway demo

# Unit tests, end-to-end tests against stock peers, bounded fuzzing.
test:
	@tests/packages.sh test $(BUILD_PACKAGES) $(DEMO_PACKAGES) $(TEST_PACKAGES)
	@$(MAKE) --no-print-directory peers
	@tests/run.sh $(SUITES)

# boringtun-cli of crates.io. BORINGTUN names one that is there already.
peers:
	@test -x "$${BORINGTUN:-$(TARGET)/peers/bin/boringtun-cli}" || \
		cargo install --quiet --locked --root $(TARGET)/peers boringtun-cli --version $(BORINGTUN_VERSION)

lint:
	@tests/packages.sh build $(BUILD_PACKAGES)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --workspace --all-targets --features ringway-supervisor/test-timers --quiet -- -D warnings
	cargo clippy -p ringway-supervisor --no-default-features --quiet -- -D warnings
	@$(MAKE) --no-print-directory deny

# Advisories need the network; where there is none, the rest is still checked.
deny:
	@tests/deny.sh $(TARGET)/lint $(CARGO_DENY_VERSION)

install: build
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/ringwayd $(TARGET)/release/ringway
	for page in $(wildcard docs/man/*.[1-9]); do \
		section=$${page##*.}; \
		install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$$section $$page || exit 1; \
	done

clean:
	cargo clean
