#!/bin/sh
# A PostgreSQL with pgvector for the tests, from Debian's packages: install_postgres.sh FOLDER
#
# Where Debian has pgvector as a package (from version 13 on) root installs it. Debian 12 has PostgreSQL 15 without it:
# there the packages are unpacked in FOLDER, which needs no root, and Debian's source of pgvector is built for them. The
# libraries that PostgreSQL needs come with the package postgresql, which root installs and others must have.
set -eu

VERSION=0.8.0
SHA256=867a2c328d4928a5a9d6f052cd3bc78c7d60228a9b914ad32aa3db88e9de27b0

folder=$1
if ls /usr/lib/postgresql/*/lib/vector.so "$folder"/usr/lib/postgresql/*/lib/vector.so >/dev/null 2>&1; then exit 0; fi
command -v apt-get >/dev/null || { echo 'There is no apt-get: install PostgreSQL with pgvector yourself.' >&2; exit 1; }

root() { [ "$(id -u)" = 0 ]; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

if root; then apt-get update -qq; fi
server=$(apt-cache depends --important postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -n 1)
number=${server#postgresql-}
[ -n "$number" ] || { echo 'Debian has no package postgresql here.' >&2; exit 1; }
if apt-cache show "$server-pgvector" >/dev/null 2>&1; then
    root || { echo "Install it as root: apt-get install $server-pgvector" >&2; exit 1; }
    install "$server" "$server-pgvector"
    exit 0
fi
if root && ! [ -x "/usr/lib/postgresql/$number/bin/postgres" ]; then install "$server"; fi
if root && ! { command -v make && command -v gcc && command -v curl; } >/dev/null; then install make gcc libc6-dev curl; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The mirror that apt is set up with has the sources, too; a security mirror has only those it changed.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' | head -n 1)
curl -fsS --max-time 120 -o source.tar.gz "${mirror%/}/pool/main/p/pgvector/pgvector_$VERSION.orig.tar.gz"
echo "$SHA256  source.tar.gz" | sha256sum -c --quiet
apt-get download -qq -o APT::Sandbox::User=root "$server" "postgresql-client-$number" "postgresql-server-dev-$number"
for package in *.deb; do dpkg -x "$package" tree; done
tar xzf source.tar.gz
built="$work/tree/usr/lib/postgresql/$number"
# OPTFLAGS: the default is for this processor alone. with_llvm: what it would add needs clang.
for target in all install; do
    make -s -C "pgvector-$VERSION" OPTFLAGS= with_llvm=no PG_CONFIG="$built/bin/pg_config" "$target"
done
# Only what runs is kept.
rm -rf "$built/lib/bitcode" "$built/lib/pgxs" "$built"/lib/*.a "$work/tree/usr/share/postgresql/$number/man"
cd - >/dev/null
mkdir -p "$folder/usr/lib/postgresql" "$folder/usr/share/postgresql"
cp -R "$work/tree/usr/share/postgresql/$number" "$folder/usr/share/postgresql/"
cp -R "$built" "$folder/usr/lib/postgresql/"
