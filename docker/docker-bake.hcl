# `docker buildx bake --file docker/docker-bake.hcl` from the project's root builds both
# architectures, with an SBOM and provenance, for `--push` to the repository in TAG; `… bake local`
# builds this machine's for `docker run`.

variable "TAG" { default = "ffpa" }
variable "VERSION" { default = "unknown" }
variable "REVISION" { default = "unknown" }

group "default" {
  targets = ["ffpa"]
}

target "local" {
  context    = "."
  dockerfile = "docker/Dockerfile"
  tags       = ["${TAG}:${VERSION}"]
  args = {
    VERSION  = VERSION
    REVISION = REVISION
  }
  output = ["type=docker"]
}

target "ffpa" {
  inherits  = ["local"]
  platforms = ["linux/amd64", "linux/arm64"]
  attest    = ["type=sbom", "type=provenance,mode=max"]
  output    = ["type=image"]
}
